//! A value that is a number or a text: a port's number or name, a count or a
//! percentage (`apimachinery/pkg/util/intstr`).

use serde_json::Value;

/// An integer or a string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IntOrString {
    /// An integer.
    Int(i32),
    /// A string.
    String(String),
}

/// A text that should be a percentage and is not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid value for IntOrString: {0:?}: string is not a percentage")]
pub struct PercentError(pub String);

impl IntOrString {
    /// Reads a JSON value; `None` if it is neither, or not a 32-bit integer.
    pub fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Some(Self::String(text.clone())),
            Value::Number(number) => number
                .as_i64()
                .and_then(|n| i32::try_from(n).ok())
                .map(Self::Int),
            _ => None,
        }
    }

    /// Returns the value as JSON.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Int(number) => Value::from(*number),
            Self::String(text) => Value::from(text.as_str()),
        }
    }

    /// Returns the percentage, if this is a text of digits and a `%`.
    pub fn percent(&self) -> Option<i32> {
        match self {
            Self::Int(_) => None,
            Self::String(text) => {
                let digits = text.strip_suffix('%')?;
                let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
                plain.then(|| digits.parse().ok()).flatten()
            }
        }
    }

    /// Returns the number, or the percentage of `total`, rounded as told.
    pub fn scaled(&self, total: i32, round_up: bool) -> Result<i32, PercentError> {
        let percent = match self {
            Self::Int(number) => return Ok(*number),
            Self::String(text) => self.percent().ok_or_else(|| PercentError(text.clone()))?,
        };
        let product = i64::from(percent) * i64::from(total);
        let scaled = if round_up { product + 99 } else { product }.div_euclid(100);
        Ok(i32::try_from(scaled).unwrap_or(if scaled < 0 { i32::MIN } else { i32::MAX }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn scales_percentages() {
        let quarter = IntOrString::from_value(&json!("25%")).unwrap();
        assert_eq!(
            (quarter.scaled(10, true), quarter.scaled(10, false)),
            (Ok(3), Ok(2))
        );
        assert_eq!(
            (quarter.scaled(4, true), quarter.scaled(0, true)),
            (Ok(1), Ok(0))
        );
        assert_eq!(IntOrString::Int(7).scaled(100, true), Ok(7));
        let most = IntOrString::String(format!("{}%", i32::MAX));
        assert_eq!(most.scaled(i32::MAX, true), Ok(i32::MAX));
        for bad in ["25", "%", "-5%", "5 %", "a%"] {
            let bad = IntOrString::String(bad.to_owned());
            assert!(bad.scaled(10, true).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn reads_and_writes_json() {
        for value in [json!(80), json!("http")] {
            assert_eq!(IntOrString::from_value(&value).unwrap().to_value(), value);
        }
        for bad in [
            json!(1.5),
            json!(true),
            json!(3_000_000_000_i64),
            json!(null),
        ] {
            assert_eq!(IntOrString::from_value(&bad), None);
        }
    }
}

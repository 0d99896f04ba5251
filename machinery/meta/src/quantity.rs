//! Resource quantities: `100m`, `1.5`, `2Gi`, `1e3`.
//!
//! A quantity is an exact number of billionths and the notation it is written
//! in. Rules of apimachinery's `resource.Quantity`: what is finer than a
//! billionth is rounded away from zero, what exceeds 2^63−1 is capped there,
//! and the canonical form has no fraction, the largest suffix that allows
//! that, and falls back from the binary to the decimal notation below 1024.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use serde_json::Value;

const NANO: i128 = 1_000_000_000;
/// The cap of a quantity, in billionths.
const MAX: i128 = i64::MAX as i128 * NANO;
/// The most digits that are read; more are an error, as is a number that no
/// one meant.
const MAX_DIGITS: usize = 64;

/// The notation a quantity is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Notation {
    /// `1k`, `1500m`.
    #[default]
    Decimal,
    /// `1Ki`.
    Binary,
    /// `1e3`.
    Exponent,
}

/// A number with a notation. Equality and order ignore the notation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    notation: Notation,
}

/// A text that is no quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)]
pub struct QuantityError;

impl Quantity {
    /// Creates a whole number.
    pub fn new(value: i64, notation: Notation) -> Self {
        Self {
            nanos: i128::from(value) * NANO,
            notation,
        }
    }

    /// Creates a number of thousandths.
    pub fn from_milli(value: i64) -> Self {
        Self {
            nanos: i128::from(value) * (NANO / 1000),
            notation: Notation::Decimal,
        }
    }

    /// Reads the string or number that JSON carries.
    pub fn from_value(value: &Value) -> Result<Self, QuantityError> {
        match value {
            Value::String(text) => text.parse(),
            Value::Number(number) => number.to_string().parse(),
            _ => Err(QuantityError),
        }
    }

    /// Returns the number, rounded up.
    pub fn value(self) -> i64 {
        clamp(div_up(self.nanos, NANO))
    }

    /// Returns the number of thousandths, rounded up.
    pub fn milli_value(self) -> i64 {
        clamp(div_up(self.nanos, NANO / 1000))
    }

    /// Tells whether the number is zero.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Tells whether the number is below zero.
    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// Tells whether the number has no fraction.
    pub fn is_whole(self) -> bool {
        self.nanos % NANO == 0
    }

    /// Returns the notation.
    pub fn notation(self) -> Notation {
        self.notation
    }

    /// Returns the sum, in this quantity's notation unless this is zero.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let notation = if self.is_zero() {
            other.notation
        } else {
            self.notation
        };
        Self {
            nanos: cap(self.nanos + other.nanos),
            notation,
        }
    }

    /// Returns the difference, in this quantity's notation unless this is zero.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        let notation = if self.is_zero() {
            other.notation
        } else {
            self.notation
        };
        Self {
            nanos: cap(self.nanos - other.nanos),
            notation,
        }
    }
}

fn cap(nanos: i128) -> i128 {
    nanos.clamp(-MAX, MAX)
}

fn clamp(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

/// Divides, rounding away from zero.
fn div_up(value: i128, by: i128) -> i128 {
    let (quotient, rest) = (value / by, value % by);
    quotient + if rest == 0 { 0 } else { value.signum() }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

/// The factor of a suffix: base to a power.
enum Scale {
    Ten(i32),
    Two(u32),
}

fn suffix(text: &str) -> Option<(Scale, Notation)> {
    let decimal = |power| Some((Scale::Ten(power), Notation::Decimal));
    let binary = |power| Some((Scale::Two(power), Notation::Binary));
    match text {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let power = text.strip_prefix(['e', 'E'])?;
            // Rust reads a leading '+' as Go does.
            Some((Scale::Ten(power.parse().ok()?), Notation::Exponent))
        }
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let (negative, rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            Some(_) => (false, text),
            None => return Err(QuantityError),
        };
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, unit) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.len() + fraction.len() == 0
            || whole.len() + fraction.len() > MAX_DIGITS
            || fraction.contains('.')
        {
            return Err(QuantityError);
        }
        let (scale, notation) = suffix(unit).ok_or(QuantityError)?;
        let nanos = scaled(whole.trim_start_matches('0'), fraction, &scale);
        let nanos = cap(nanos);
        Ok(Self {
            nanos: if negative { -nanos } else { nanos },
            notation,
        })
    }
}

/// Computes `whole.fraction × scale` in billionths, rounded up, saturating.
fn scaled(whole: &str, fraction: &str, scale: &Scale) -> i128 {
    let fraction = fraction.trim_end_matches('0');
    let digits: String = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return 0;
    }
    let places = i64::try_from(fraction.len()).unwrap_or(i64::MAX);
    match scale {
        Scale::Ten(power) => shift(digits, 9 + i64::from(*power) - places),
        Scale::Two(power) => {
            // Exact as long as the digits fit; a number that long with a binary
            // suffix is beyond the cap or finer than a billionth anyway.
            let Ok(mantissa) = digits.parse::<i128>() else {
                return shift(digits, 9 - places);
            };
            let factor = NANO << power;
            match mantissa.checked_mul(factor) {
                Some(product) => div_up(product, ten_to(places)),
                None => shift(&digits[..digits.len().min(30)], 60),
            }
        }
    }
}

fn ten_to(power: i64) -> i128 {
    u32::try_from(power)
        .ok()
        .and_then(|p| 10_i128.checked_pow(p))
        .unwrap_or(i128::MAX)
}

/// Computes `digits × 10^power`, rounded up, saturating beyond the cap.
fn shift(digits: &str, power: i64) -> i128 {
    if power >= 0 {
        let parsed = digits.parse::<i128>().ok();
        return parsed
            .and_then(|d| d.checked_mul(ten_to(power)))
            .unwrap_or(i128::MAX);
    }
    let cut = usize::try_from(-power).unwrap_or(usize::MAX);
    if cut >= digits.len() {
        return 1; // above zero, below a billionth
    }
    let (kept, dropped) = digits.split_at(digits.len() - cut);
    let round = i128::from(dropped.bytes().any(|b| b != b'0'));
    kept.parse::<i128>()
        .map_or(i128::MAX, |k| k.saturating_add(round))
}

impl fmt::Display for Quantity {
    /// Writes the canonical form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let whole = self.nanos / NANO;
        if self.notation == Notation::Binary && self.is_whole() && whole.abs() >= 1024 {
            let (mut mantissa, mut unit) = (whole, 0);
            const UNITS: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
            while mantissa % 1024 == 0 && unit + 1 < UNITS.len() {
                mantissa /= 1024;
                unit += 1;
            }
            return write!(f, "{mantissa}{}", UNITS[unit]);
        }
        let (mut mantissa, mut power) = (self.nanos, -9);
        while mantissa % 1000 == 0 && power < 18 {
            mantissa /= 1000;
            power += 3;
        }
        if self.notation == Notation::Exponent {
            return if power == 0 {
                write!(f, "{mantissa}")
            } else {
                write!(f, "{mantissa}e{power}")
            };
        }
        let unit = match power {
            -9 => "n",
            -6 => "u",
            -3 => "m",
            0 => "",
            3 => "k",
            6 => "M",
            9 => "G",
            12 => "T",
            15 => "P",
            _ => "E",
        };
        write!(f, "{mantissa}{unit}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn q(text: &str) -> Quantity {
        text.parse().unwrap()
    }

    #[test]
    fn canonical_forms() {
        for (text, canonical) in [
            ("0", "0"),
            ("0Ki", "0"),
            ("1", "1"),
            ("0.1", "100m"),
            (".5", "500m"),
            ("1.", "1"),
            ("100m", "100m"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("1.5", "1500m"),
            ("1000", "1k"),
            ("100000", "100k"),
            ("1024", "1024"),
            ("1Ki", "1Ki"),
            ("1024Ki", "1Mi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("1023", "1023"),
            ("1e3", "1e3"),
            ("1E3", "1e3"),
            ("12e-1", "1200e-3"),
            ("1E", "1E"),
            ("1Ei", "1Ei"),
            ("-1", "-1"),
            ("+2k", "2k"),
            ("0.0000000001", "1n"),
            ("1.0000000001", "1000000001n"),
            ("100Ei", "9223372036854775807"),
            ("99999999999999999999999999999999999", "9223372036854775807"),
        ] {
            assert_eq!(q(text).to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn refuses_other_texts() {
        for text in [
            "", "-", "a", "1a", "1.2.3", "1KI", "1ki", "1 ", " 1", "1e", "1mm", ".", "--1",
        ] {
            assert_eq!(text.parse::<Quantity>(), Err(QuantityError), "{text:?}");
        }
        assert!("9".repeat(65).parse::<Quantity>().is_err());
        assert!(Quantity::from_value(&Value::Bool(true)).is_err());
    }

    #[test]
    fn values_round_up() {
        assert_eq!((q("1500m").value(), q("-1500m").value()), (2, -2));
        assert_eq!((q("1n").milli_value(), q("2").milli_value()), (1, 2000));
        assert_eq!(q("1Gi").value(), 1 << 30);
        assert_eq!(Quantity::from_value(&Value::from(2)).unwrap(), q("2000m"));
        assert_eq!(Quantity::from_value(&Value::from(0.5)).unwrap(), q("500m"));
    }

    #[test]
    fn sums_keep_the_notation() {
        assert_eq!(q("1Gi").plus(q("512Mi")).to_string(), "1536Mi");
        assert_eq!(q("0").plus(q("512Mi")).to_string(), "512Mi");
        assert_eq!(q("1").minus(q("250m")).to_string(), "750m");
        assert_eq!(q("9E").plus(q("9E")).value(), i64::MAX);
    }

    fn texts() -> impl Strategy<Value = String> {
        let units = prop::sample::select(vec![
            "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei",
            "e2", "e-4",
        ]);
        ("[+-]?", "[0-9]{1,12}(\\.[0-9]{0,12})?", units)
            .prop_map(|(sign, number, unit)| format!("{sign}{number}{unit}"))
    }

    proptest! {
        #[test]
        fn canonical_form_is_a_fixed_point(text in texts()) {
            let one = q(&text);
            let again = q(&one.to_string());
            prop_assert_eq!(one, again);
            prop_assert_eq!(one.to_string(), again.to_string());
        }

        #[test]
        fn addition_is_a_group_below_the_cap(a in -1_000_000_i64..1_000_000, b in -1_000_000_i64..1_000_000) {
            let (x, y) = (Quantity::from_milli(a), Quantity::from_milli(b));
            prop_assert_eq!(x.plus(y), y.plus(x));
            prop_assert_eq!(x.plus(y).minus(y), x);
            prop_assert_eq!(x.cmp(&y), a.cmp(&b));
            prop_assert_eq!(x.milli_value(), a);
        }

        #[test]
        fn never_panics(text in "[0-9.eEinumkKMGTP+-]{0,24}") {
            let _ = text.parse::<Quantity>();
        }
    }
}

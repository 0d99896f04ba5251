//! Absolute numbers and percentages, and which way a percentage rounds.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Says which way a fraction of a replica goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// To the next whole number.
    Up,
    /// To the whole number below.
    Down,
}

/// Resolves `25%` or `3` against a total, or nothing if it is neither.
///
/// Validation refuses anything else at the API, so a caller may fall back to a
/// default without hiding a mistake.
pub fn scaled(value: &IntOrString, total: i32, round: Round) -> Option<i32> {
    match value {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(text) => {
            let percent: i64 = text.strip_suffix('%')?.parse().ok()?;
            let product = percent.checked_mul(i64::from(total))?;
            let whole = match round {
                Round::Up => product.checked_add(99)?.div_euclid(100),
                Round::Down => product.div_euclid(100),
            };
            i32::try_from(whole).ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_round_the_way_they_are_told() {
        let percent = |text: &str| IntOrString::String(text.to_owned());
        for (value, total, up, down) in [
            (percent("25%"), 10, Some(3), Some(2)),
            (percent("25%"), 1, Some(1), Some(0)),
            (percent("100%"), 7, Some(7), Some(7)),
            (percent("0%"), 7, Some(0), Some(0)),
            (percent("1%"), 1000, Some(10), Some(10)),
            (IntOrString::Int(4), 10, Some(4), Some(4)),
            (percent("x%"), 10, None, None),
            (percent("7"), 10, None, None),
        ] {
            assert_eq!(
                scaled(&value, total, Round::Up),
                up,
                "{value:?} of {total} up"
            );
            assert_eq!(
                scaled(&value, total, Round::Down),
                down,
                "{value:?} of {total} down"
            );
        }
    }
}

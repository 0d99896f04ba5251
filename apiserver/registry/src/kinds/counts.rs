//! Counts that may be percentages, as budgets and update strategies have them.

use meta::FieldError;
use meta::intstr::IntOrString;
use serde_json::Value;

use crate::validate::Errors;

/// Says what a percentage looks like.
pub(super) const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";

/// Checks that a value is a number that is not below zero, or a percentage.
pub(super) fn check(value: &Value, path: &str, errors: &mut Errors) {
    match IntOrString::from_value(value) {
        Some(IntOrString::Int(number)) if number < 0 => errors.push(FieldError::invalid(
            path,
            number,
            "must be greater than or equal to 0",
        )),
        Some(text @ IntOrString::String(_)) if text.percent().is_none() => {
            errors.push(FieldError::invalid(path, text.to_value(), PERCENT));
        }
        Some(_) => {}
        None => errors.push(FieldError::invalid(
            path,
            value.clone(),
            "must be an integer or percentage (e.g '5%%')",
        )),
    }
}

/// Checks that a percentage is not more than all.
pub(super) fn at_most_all(value: &Value, path: &str, errors: &mut Errors) {
    let percent = IntOrString::from_value(value).and_then(|v| v.percent());
    if percent.is_some_and(|percent| percent > 100) {
        errors.push(FieldError::invalid(
            path,
            value.clone(),
            "must not be greater than 100%",
        ));
    }
}

/// Returns the number, or the number before the percent sign; zero for neither.
pub(super) fn amount(value: Option<&Value>) -> i32 {
    match value.and_then(IntOrString::from_value) {
        Some(IntOrString::Int(number)) => number,
        Some(text) => text.percent().unwrap_or(0),
        None => 0,
    }
}

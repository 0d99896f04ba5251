//! LimitRange: what pods, containers and claims of a namespace may ask for.

use std::collections::BTreeSet;

use jiff::Timestamp;
use meta::quantity::{Notation, Quantity};
use meta::value::{at, str_at};
use meta::{FieldError, names};
use serde_json::{Map, Value, json};

use super::resources;
use crate::kind::{Column, Kind, Strategy};
use crate::podspec::each;
use crate::print;
use crate::validate::{Errors, items};

/// Describes the kind.
pub(crate) static KIND: Kind = Kind {
    kind: "LimitRange",
    list_kind: "LimitRangeList",
    plural: "limitranges",
    singular: "limitrange",
    short_names: &["limits"],
    storage_prefix: "limitranges",
    definition: "io.k8s.api.core.v1.LimitRange",
    columns: &[
        Column::name(),
        Column {
            ty: "date",
            ..Column::text("Created At", "When the server created the object.")
        },
    ],
    strategy: &LimitRange,
    ..Kind::BASE
};

struct LimitRange;

impl Strategy for LimitRange {
    fn default(&self, object: &mut Value) {
        let Some(Value::Object(spec)) = object.get_mut("spec") else {
            return;
        };
        for item in each(spec, "limits") {
            if item.get("type") == Some(&json!("Container")) {
                // In this order: a later one sees what an earlier one filled in.
                inherit(item, "max", "default");
                inherit(item, "default", "defaultRequest");
                inherit(item, "min", "defaultRequest");
            }
        }
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        let mut seen = BTreeSet::new();
        for (index, item) in items(object, "spec.limits").iter().enumerate() {
            let path = format!("spec.limits[{index}]");
            let ty = str_at(item, "type");
            type_name(ty, &format!("{path}.type"), errors);
            if !seen.insert(ty) {
                errors.push(FieldError::duplicate(format!("{path}.type"), ty));
            }
            limit(item, ty, &path, errors);
        }
    }

    fn cells(&self, object: &Value, _: Timestamp) -> Vec<Value> {
        let created = str_at(object, "metadata.creationTimestamp");
        vec![print::name(object), Value::from(created)]
    }
}

/// Takes over the amounts of one field where another has none.
fn inherit(item: &mut Map<String, Value>, from: &str, to: &str) {
    let Some(source) = item.get(from).and_then(Value::as_object).cloned() else {
        return;
    };
    if source.is_empty() {
        return;
    }
    let target = item.entry(to.to_owned()).or_insert_with(|| json!({}));
    if let Value::Object(target) = target {
        for (name, amount) in source {
            target.entry(name).or_insert(amount);
        }
    }
}

fn type_name(ty: &str, path: &str, errors: &mut Errors) {
    let found = names::qualified_name_errors(ty);
    let standard = ["Pod", "Container", "PersistentVolumeClaim"];
    if found.is_empty() && !ty.contains('/') && !standard.contains(&ty) {
        let words = "must be a standard limit type or fully qualified";
        errors.push(FieldError::invalid(path, ty, words));
    }
    for error in found {
        errors.push(FieldError::invalid(path, ty, error));
    }
}

fn limit(item: &Value, ty: &str, path: &str, errors: &mut Errors) {
    for field in ["default", "defaultRequest"] {
        if ty == "Pod" && print::count(item, field) > 0 {
            let words = "may not be specified when `type` is 'Pod'";
            errors.push(FieldError::forbidden(format!("{path}.{field}"), words));
        }
    }
    let checked: &[&str] = match ty {
        "Pod" => &["max", "min", "maxLimitRequestRatio"],
        _ => &[
            "max",
            "min",
            "default",
            "defaultRequest",
            "maxLimitRequestRatio",
        ],
    };
    let mut keys = BTreeSet::new();
    for field in checked {
        for name in resources::map(item, field).into_iter().flat_map(Map::keys) {
            let at = format!("{path}.{field}[{name}]");
            match ty {
                "Pod" | "Container" => resources::name_of_container(name, &at, errors),
                _ => {
                    resources::name(name, &at, errors);
                }
            }
            keys.insert(name.as_str());
        }
    }
    let sized = |field: &str| item.get(field).and_then(|m| m.get("storage")).is_some();
    if ty == "PersistentVolumeClaim" && !sized("min") && !sized("max") {
        errors.push(FieldError::required(
            format!("{path}.limits"),
            "either minimum or maximum storage value is required, but neither was provided",
        ));
    }
    for name in keys {
        Amounts::of(item, checked, name).check(path, errors);
    }
}

/// What a limit says of one resource.
struct Amounts<'a> {
    name: &'a str,
    min: Option<Quantity>,
    max: Option<Quantity>,
    default: Option<Quantity>,
    request: Option<Quantity>,
    ratio: Option<Quantity>,
}

impl<'a> Amounts<'a> {
    fn of(item: &Value, checked: &[&str], name: &'a str) -> Self {
        let find = |field: &str| match checked.contains(&field) {
            true => resources::amount(at(item, field), name),
            false => None,
        };
        Self {
            name,
            min: find("min"),
            max: find("max"),
            default: find("default"),
            request: find("defaultRequest"),
            ratio: find("maxLimitRequestRatio"),
        }
    }

    fn check(&self, path: &str, errors: &mut Errors) {
        let (min, max) = (("min value", self.min), ("max value", self.max));
        let default = ("default value", self.default);
        let request = ("default request value", self.request);
        let asked = ("default limit value", self.default);
        // The smaller one, the larger one, whose field is to blame, and whose
        // amount is quoted.
        for (low, high, field, quoted) in [
            (min, max, "min", self.min),
            (min, request, "defaultRequest", self.request),
            (request, max, "defaultRequest", self.request),
            (request, asked, "defaultRequest", self.request),
            (min, default, "default", self.min),
            (default, max, "default", self.max),
        ] {
            if let ((small, Some(a)), (large, Some(b)), Some(quoted)) = (low, high, quoted)
                && a > b
            {
                errors.push(FieldError::invalid(
                    format!("{path}.{field}[{}]", self.name),
                    quoted.to_string(),
                    format!("{small} {a} is greater than {large} {b}"),
                ));
            }
        }
        self.check_ratio(path, errors);
        if let (Some(default), Some(request)) = (self.default, self.request)
            && default != request
            && !resources::may_overcommit(self.name)
        {
            errors.push(FieldError::invalid(
                format!("{path}.defaultRequest[{}]", self.name),
                request.to_string(),
                format!(
                    "default value {default} must equal to defaultRequest value {request} in {}",
                    self.name
                ),
            ));
        }
    }

    fn check_ratio(&self, path: &str, errors: &mut Errors) {
        let Some(ratio) = self.ratio else { return };
        let mut say = |words: String| {
            let at = format!("{path}.maxLimitRequestRatio[{}]", self.name);
            errors.push(FieldError::invalid(at, ratio.to_string(), words));
        };
        if ratio < Quantity::new(1, Notation::Decimal) {
            say(format!("ratio {ratio} is less than 1"));
        }
        if let (Some(min), Some(max)) = (self.min, self.max) {
            #[allow(clippy::cast_precision_loss, reason = "a ratio is an estimate")]
            let most = max.milli_value() as f64 / min.milli_value() as f64;
            #[allow(clippy::cast_precision_loss, reason = "a ratio is an estimate")]
            let wanted = ratio.milli_value() as f64 / 1000.0;
            if wanted > most {
                say(format!("ratio {ratio} is greater than max/min = {most:.6}"));
            }
        }
    }
}

//! PriorityLevelConfiguration (flowcontrol.apiserver.k8s.io/v1).

use jiff::Timestamp;
use meta::FieldError;
use meta::value::{at, int_at, object_mut, str_at};
use serde_json::{Map, Value, json};

use super::flowschema::GROUP;
use crate::checks::conditions;
use crate::kind::{Column, Kind, Strategy, Subresource, put};
use crate::podspec::fill;
use crate::print;
use crate::validate::Errors;

/// The most queues of a level.
const QUEUES_MAX: i64 = 10_000_000;
/// The most bits that dealing a hand of queues may need.
const ENTROPY_MAX: i64 = 60;

/// Describes the kind.
pub(crate) static KIND: Kind = Kind {
    group: GROUP,
    kind: "PriorityLevelConfiguration",
    list_kind: "PriorityLevelConfigurationList",
    plural: "prioritylevelconfigurations",
    singular: "prioritylevelconfiguration",
    namespaced: false,
    subresources: &[Subresource::status(
        GROUP,
        "v1",
        "PriorityLevelConfiguration",
    )],
    storage_prefix: "prioritylevelconfigurations",
    definition: "io.k8s.api.flowcontrol.v1.PriorityLevelConfiguration",
    generation: true,
    columns: &[
        Column::name(),
        Column::text("Type", "Whether requests are limited."),
        Column::text(
            "NominalConcurrencyShares",
            "Its share of what runs at once.",
        ),
        Column::text("Queues", "How many queues it has."),
        Column::text("HandSize", "Among how many a flow chooses."),
        Column::text("QueueLengthLimit", "How long a queue may be."),
        Column::age(),
    ],
    strategy: &PriorityLevel,
    ..Kind::BASE
};

struct PriorityLevel;

impl Strategy for PriorityLevel {
    fn default(&self, object: &mut Value) {
        let spec = object_mut(object, "spec");
        if let Some(exempt) = spec.get_mut("exempt").and_then(Value::as_object_mut) {
            fill(exempt, "nominalConcurrencyShares", 0);
            fill(exempt, "lendablePercent", 0);
        }
        let Some(limited) = spec.get_mut("limited").and_then(Value::as_object_mut) else {
            return;
        };
        fill(limited, "nominalConcurrencyShares", 30);
        fill(limited, "lendablePercent", 0);
        let queuing = limited
            .get_mut("limitResponse")
            .and_then(|r| r.get_mut("queuing"))
            .and_then(Value::as_object_mut);
        if let Some(queuing) = queuing {
            for (field, number) in [("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)] {
                fill_number(queuing, field, number);
            }
        }
    }

    fn prepare_for_create(&self, object: &mut Value) {
        put(object, "status", Some(json!({})));
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        let ty = str_at(object, "spec.type");
        if (meta::value::name(object) == "exempt") != (ty == "Exempt") {
            errors.push(FieldError::invalid(
                "spec.type",
                ty,
                "type must be 'Exempt' if and only if name is 'exempt'",
            ));
        }
        let (limited, exempt) = (at(object, "spec.limited"), at(object, "spec.exempt"));
        match ty {
            "Exempt" => {
                if limited.is_some() {
                    let words = "must be nil if the type is not Limited";
                    errors.push(FieldError::forbidden("spec.limited", words));
                }
                if let Some(exempt) = exempt {
                    shares(exempt, "spec.exempt", errors);
                }
            }
            "Limited" => {
                if exempt.is_some() {
                    let words = "must be nil if the type is Limited";
                    errors.push(FieldError::forbidden("spec.exempt", words));
                }
                match limited {
                    None => errors.push(FieldError::required(
                        "spec.limited",
                        "must not be empty when type is Limited",
                    )),
                    Some(limited) => limits(limited, errors),
                }
            }
            other => errors.push(FieldError::not_supported(
                "spec.type",
                other,
                &["Exempt", "Limited"],
            )),
        }
        conditions(object, "must not be empty", errors);
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let queuing = "spec.limited.limitResponse.queuing";
        let number = |path: String| match int_at(object, &path) {
            Some(number) => Value::from(number),
            None => Value::from(print::NONE),
        };
        vec![
            print::name(object),
            Value::from(str_at(object, "spec.type")),
            number("spec.limited.nominalConcurrencyShares".to_owned()),
            number(format!("{queuing}.queues")),
            number(format!("{queuing}.handSize")),
            number(format!("{queuing}.queueLengthLimit")),
            print::age(object, now),
        ]
    }
}

fn fill_number(map: &mut Map<String, Value>, field: &str, number: i64) {
    if map.get(field).and_then(Value::as_i64).unwrap_or(0) == 0 {
        map.insert(field.to_owned(), Value::from(number));
    }
}

fn shares(of: &Value, path: &str, errors: &mut Errors) {
    for (field, range, words) in [
        (
            "nominalConcurrencyShares",
            0..=i64::MAX,
            "must be a non-negative integer",
        ),
        (
            "lendablePercent",
            0..=100,
            "must be between 0 and 100, inclusive",
        ),
        (
            "borrowingLimitPercent",
            0..=i64::MAX,
            "if specified, must be a non-negative integer",
        ),
    ] {
        if let Some(number) = int_at(of, field)
            && !range.contains(&number)
        {
            errors.push(FieldError::invalid(
                format!("{path}.{field}"),
                number,
                words,
            ));
        }
    }
}

fn limits(limited: &Value, errors: &mut Errors) {
    shares(limited, "spec.limited", errors);
    const PATH: &str = "spec.limited.limitResponse";
    let queuing = at(limited, "limitResponse.queuing");
    let path = format!("{PATH}.queuing");
    match (str_at(limited, "limitResponse.type"), queuing) {
        ("Reject", Some(_)) => errors.push(FieldError::forbidden(
            path,
            "must be nil if limited.limitResponse.type is not Limited",
        )),
        ("Reject", None) => {}
        ("Queue", None) => errors.push(FieldError::required(
            path,
            "must not be empty if limited.limitResponse.type is Limited",
        )),
        ("Queue", Some(queuing)) => check_queuing(queuing, &path, errors),
        (other, _) => errors.push(FieldError::not_supported(
            format!("{PATH}.type"),
            other,
            &["Queue", "Reject"],
        )),
    }
}

fn check_queuing(queuing: &Value, path: &str, errors: &mut Errors) {
    let number = |field: &str| int_at(queuing, field).unwrap_or(0);
    let (queues, hand) = (number("queues"), number("handSize"));
    let mut say = |field: &str, words: String| {
        errors.push(FieldError::invalid(
            format!("{path}.{field}"),
            number(field),
            words,
        ));
    };
    if number("queueLengthLimit") <= 0 {
        say("queueLengthLimit", "must be positive".to_owned());
    }
    if queues <= 0 {
        say("queues", "must be positive".to_owned());
    } else if queues > QUEUES_MAX {
        say("queues", format!("must not be greater than {QUEUES_MAX}"));
    }
    if hand <= 0 {
        say("handSize", "must be positive".to_owned());
    } else if hand > queues {
        say(
            "handSize",
            format!("should not be greater than queues ({queues})"),
        );
    } else if entropy(queues, hand) > ENTROPY_MAX {
        say(
            "handSize",
            format!(
                "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {ENTROPY_MAX}"
            ),
        );
    }
}

/// Returns how many bits it takes to deal a hand from a deck.
fn entropy(deck: i64, hand: i64) -> i64 {
    let bits = (deck as f64).log2() * hand as f64;
    bits.ceil() as i64
}

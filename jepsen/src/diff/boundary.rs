//! The delete at the compacted revision.
//!
//! A watch may start at the compacted revision, and a key deleted at just that
//! revision must then be told as deleted (etcd issue 19179). Before 3.5.16 etcd
//! forgot that tombstone with the rest, so older peers leave the event out. Where
//! the plain comparison found a difference, such deletes are left out on both sides
//! and everything else is compared.

use prost_reflect::{DynamicMessage, ReflectMessage};
use proto::{etcdserverpb as pb, mvccpb::event::EventType};

use super::{
    answer::{Answer, Part},
    wire,
};

/// Returns what watches told without the deletes at this revision, if there were
/// any.
pub(crate) fn without_deletes_at(answer: &Answer, revision: i64) -> Option<Answer> {
    let mut left = Answer::new();
    let mut found = false;
    for part in answer {
        let Some((message, mut reply)) = watch_reply(part) else {
            left.push(part.clone());
            continue;
        };
        let before = reply.events.len();
        reply.events.retain(|event| {
            let at = event.kv.as_ref().map_or(0, |kv| kv.mod_revision);
            event.r#type() != EventType::Delete || at != revision
        });
        if reply.events.len() == before {
            left.push(part.clone());
            continue;
        }
        found = true;
        if !reply.events.is_empty() {
            let said = wire::describe(message.descriptor(), &reply);
            left.push(Part::new(part.label.clone(), Ok(said)));
        }
    }
    found.then(|| renumbered(left))
}

fn watch_reply(part: &Part) -> Option<(&DynamicMessage, pb::WatchResponse)> {
    let message = part.said.as_ref().ok()?;
    (message.descriptor().name() == "WatchResponse").then(|| (message, wire::typed(message)))
}

/// Counts the messages of each watch anew; see `watching`, which labels them.
fn renumbered(mut answer: Answer) -> Answer {
    let mut last = (String::new(), 0);
    for part in &mut answer {
        let Some((about, _)) = part.label.rsplit_once('[') else {
            continue;
        };
        last = match last {
            (known, at) if known == about => (known, at + 1),
            _ => (about.to_owned(), 0),
        };
        part.label = format!("{}[{}]", last.0, last.1);
    }
    answer
}

#[cfg(test)]
mod tests {
    use proto::mvccpb::{Event, KeyValue};

    use super::*;

    fn part(label: &str, events: &[(EventType, i64)]) -> Part {
        let event = |(kind, mod_revision): &(EventType, i64)| Event {
            r#type: (*kind).into(),
            kv: Some(KeyValue {
                mod_revision: *mod_revision,
                ..KeyValue::default()
            }),
            ..Event::default()
        };
        let reply = pb::WatchResponse {
            events: events.iter().map(event).collect(),
            ..pb::WatchResponse::default()
        };
        let kind = wire::message("WatchResponse").unwrap();
        Part::new(label, Ok(wire::describe(kind, &reply)))
    }

    #[test]
    fn only_the_delete_at_the_boundary_is_left_out() {
        use EventType::{Delete, Put};
        let ours = vec![part("1 watch 0[0]", &[(Delete, 5), (Put, 6), (Delete, 7)])];
        let peer = vec![part("1 watch 0[0]", &[(Put, 6), (Delete, 7)])];
        assert_eq!(without_deletes_at(&ours, 5), Some(peer.clone()));
        assert_eq!(without_deletes_at(&peer, 5), None);
        assert_eq!(without_deletes_at(&ours, 6), None, "a put is no delete");
    }

    #[test]
    fn a_message_of_nothing_else_goes_and_the_next_takes_its_number() {
        let ours = vec![
            part("1 watch 0[0]", &[(EventType::Delete, 5)]),
            part("1 watch 0[1]", &[(EventType::Put, 6)]),
            part("1 watch 1[0]", &[(EventType::Put, 6)]),
        ];
        let left = without_deletes_at(&ours, 5).unwrap();
        let labels: Vec<_> = left.iter().map(|part| part.label.as_str()).collect();
        assert_eq!(labels, ["1 watch 0[0]", "1 watch 1[0]"]);
    }
}

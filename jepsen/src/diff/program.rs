//! A program: what a client does, one step a line.
//!
//! ```text
//! KV/Put key:"a",value:"1"
//! @alice KV/Range key:"a",revision:<head-1>
//! Watch/1 create_request{key:"a",prev_kv:true}
//! Settle
//! ```
//!
//! The text is read back as it was written, so that a failing program can be kept,
//! edited by hand and run again.

use std::fmt;

use anyhow::{Context as _, anyhow, bail};
use prost::Message;
use prost_reflect::{DynamicMessage, MessageDescriptor, MethodDescriptor};
use proto::etcdserverpb as pb;

use super::{symbol, wire};

/// What a step does with its message.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verb {
    /// Calls a method and takes the answer.
    Call(MethodDescriptor),
    /// Says something on a watch stream, which is opened by the first word.
    Watch(u8),
    /// Hangs up a watch stream.
    Close(u8),
    /// Waits until every stream has told all it has to tell.
    Settle,
    /// Grants a lease too short to be kept, and revokes it at once.
    Brief,
    /// Grants a short lease, puts keys on it and waits until it has expired.
    Expire,
}

/// One step, and who takes it; the nameless user shows no token.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    pub(crate) user: String,
    pub(crate) verb: Verb,
    pub(crate) request: DynamicMessage,
}

impl Step {
    /// Calls a method, by its short name such as `KV/Range`.
    pub(crate) fn call(method: &str, request: &impl Message) -> Self {
        let method = wire::method(method).expect("a method of our own .proto text");
        let request = wire::describe(method.input(), request);
        Self::new(Verb::Call(method), request)
    }

    /// Says something on a watch stream.
    pub(crate) fn watch(stream: u8, request: pb::watch_request::RequestUnion) -> Self {
        let request = pb::WatchRequest {
            request_union: Some(request),
        };
        let verb = Verb::Watch(stream);
        let request = wire::describe(kind(&verb), &request);
        Self::new(verb, request)
    }

    /// Takes a lease and gives it up again; see [`Verb::Brief`] and [`Verb::Expire`].
    pub(crate) fn lease(verb: Verb, grant: pb::LeaseGrantRequest) -> Self {
        let request = wire::describe(kind(&verb), &grant);
        Self::new(verb, request)
    }

    /// Does what needs no words.
    pub(crate) fn plain(verb: Verb) -> Self {
        let request = DynamicMessage::new(kind(&verb));
        Self::new(verb, request)
    }

    fn new(verb: Verb, request: DynamicMessage) -> Self {
        Self {
            user: String::new(),
            verb,
            request,
        }
    }

    /// Says who takes the step.
    #[must_use]
    pub(crate) fn by(mut self, user: &str) -> Self {
        user.clone_into(&mut self.user);
        self
    }

    /// Names what is done: the method, or the verb.
    pub(crate) fn name(&self) -> String {
        match &self.verb {
            Verb::Call(method) => format!("{}/{}", method.parent_service().name(), method.name()),
            Verb::Watch(stream) => format!("Watch/{stream}"),
            Verb::Close(stream) => format!("Close/{stream}"),
            Verb::Settle => "Settle".to_owned(),
            Verb::Brief => "Brief".to_owned(),
            Verb::Expire => "Expire".to_owned(),
        }
    }

    /// Reads a step as it is written.
    pub(crate) fn parse(line: &str) -> anyhow::Result<Self> {
        let (user, line) = match line.strip_prefix('@') {
            Some(rest) => rest.split_once(' ').context("a user and nothing to do")?,
            None => ("", line),
        };
        let (name, text) = line.split_once(' ').unwrap_or((line, ""));
        let verb = verb(name)?;
        let text = symbol::from_names(text).ok_or_else(|| anyhow!("no such symbol in {text}"))?;
        let request = DynamicMessage::parse_text_format(kind(&verb), &text)
            .map_err(|error| anyhow!("{error} in {text}"))?;
        Ok(Self::new(verb, request).by(user))
    }
}

fn kind(verb: &Verb) -> MessageDescriptor {
    let name = match verb {
        Verb::Call(method) => return method.input(),
        Verb::Watch(_) => "WatchRequest",
        Verb::Close(_) | Verb::Settle => "WatchProgressRequest",
        Verb::Brief | Verb::Expire => "LeaseGrantRequest",
    };
    wire::message(name).expect("a message of our own .proto text")
}

fn verb(name: &str) -> anyhow::Result<Verb> {
    let stream = |number: &str| {
        number
            .parse()
            .with_context(|| format!("no stream {number}"))
    };
    Ok(match name {
        "Settle" => Verb::Settle,
        "Brief" => Verb::Brief,
        "Expire" => Verb::Expire,
        name => match (name.strip_prefix("Watch/"), name.strip_prefix("Close/")) {
            (Some(number), _) => Verb::Watch(stream(number)?),
            (_, Some(number)) => Verb::Close(stream(number)?),
            _ => match wire::method(name) {
                Some(method) => Verb::Call(method),
                None => bail!("no method {name}"),
            },
        },
    })
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.user.is_empty() {
            write!(f, "@{} ", self.user)?;
        }
        write!(f, "{}", self.name())?;
        let text = symbol::to_names(&self.request.to_string());
        if text.is_empty() {
            Ok(())
        } else {
            write!(f, " {text}")
        }
    }
}

/// Reads a program; empty lines and those that start with `#` say nothing.
pub(crate) fn parse(text: &str) -> anyhow::Result<Vec<Step>> {
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'))
        .map(|(at, line)| Step::parse(line).with_context(|| format!("line {}", at + 1)))
        .collect()
}

/// Writes a program.
pub(crate) fn text(steps: &[Step]) -> String {
    steps.iter().map(|step| format!("{step}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_reads_as_it_is_written() {
        let written = [
            r#"KV/Put key:"a\000\377\"",value:"<head>",lease:<lease+1>"#,
            "@alice KV/Range revision:<head-2>,sort_order:7,sort_target:MOD",
            r#"KV/Txn compare:[{target:MOD,mod_revision:<compact>}],success:[{request_put{key:"k"}}]"#,
            r#"Watch/2 create_request{key:"a",filters:[NOPUT]}"#,
            "Close/2",
            "Settle",
            "Expire TTL:2,ID:7",
        ]
        .join("\n")
            + "\n";
        let steps = parse(&format!("# a comment\n\n{written}")).unwrap();
        assert_eq!(steps.len(), 7);
        assert_eq!(steps[1].user, "alice");
        assert_eq!(text(&steps), written);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_line() {
        let error = parse("Settle\nKV/Rage key:\"a\"\n").unwrap_err();
        assert_eq!(format!("{error:#}"), "line 2: no method KV/Rage");
        assert!(parse("KV/Range kye:\"a\"").is_err());
        assert!(parse("KV/Range revision:<heat>").is_err());
    }
}

//! Who a request writes as: the name under which what it changes is kept as its
//! own (`metadata.managedFields`).

use http::header::USER_AGENT;
use jiff::Timestamp;
use meta::Status;
use registry::fieldmerge::Writer;
use registry::kind::Endpoint;
use registry::validate;

use crate::api::Target;
use crate::pipeline::Context;
use crate::query::WriteOptions;

/// Who writes, through which subresource, and when.
#[derive(Clone, Debug)]
pub(crate) struct Manager {
    name: String,
    subresource: String,
    now: Timestamp,
}

impl Manager {
    /// Names the sender of a request: as it says, or as its user agent does.
    pub(crate) fn of(cx: &Context, options: &WriteOptions) -> Self {
        let agent = || {
            let agent = cx.headers.get(USER_AGENT).map(|v| v.as_bytes());
            of_user_agent(&String::from_utf8_lossy(agent.unwrap_or_default()))
        };
        let resource = cx.info.resource.as_ref();
        Self {
            name: match options.field_manager.as_str() {
                "" => agent(),
                name => name.to_owned(),
            },
            subresource: resource.map(|r| r.subresource.clone()).unwrap_or_default(),
            now: Timestamp::now(),
        }
    }

    /// Returns the manager's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the subresource written through; empty for the object itself.
    pub(crate) fn subresource(&self) -> &str {
        &self.subresource
    }

    /// Returns when it writes.
    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }

    /// Returns the writer through an endpoint of what a request is aimed at.
    pub(crate) fn writer<'a>(
        &'a self,
        target: &'a Target,
        endpoint: Endpoint,
    ) -> Result<Writer<'a>, Status> {
        let kind = target.kind();
        let served = target.resource.fields.get(kind, endpoint);
        let served =
            served.ok_or_else(|| Status::internal(format!("no schema for {}", kind.kind)))?;
        Ok(served.writer(&self.name, &self.subresource, self.now))
    }
}

/// Makes a manager's name of a user agent: what stands before the first slash,
/// without what cannot be printed, and no longer than a name may be.
fn of_user_agent(agent: &str) -> String {
    let mut name = String::new();
    let head = agent.split('/').next().unwrap_or_default();
    for c in head.chars().filter(|c| validate::is_printable(*c)) {
        if name.len() + c.len_utf8() > validate::FIELD_MANAGER_MAX {
            break;
        }
        name.push(c);
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_agent_names_a_manager() {
        for (agent, name) in [
            ("kubectl/v1.33.0 (linux/amd64) kubernetes/abc", "kubectl"),
            ("curl", "curl"),
            ("", ""),
            ("/x", ""),
            ("a\tb\u{200b}c/1", "abc"),
            ("Go http client 1.1/x", "Go http client 1.1"),
        ] {
            assert_eq!(of_user_agent(agent), name, "{agent:?}");
        }
        assert_eq!(of_user_agent(&"é".repeat(100)), "é".repeat(64));
    }
}

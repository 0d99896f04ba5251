//! Being somebody else (`Impersonate-*` headers): kubectl's `--as`.
//!
//! Whoever asks for it must be allowed to, for the user and for each group; then
//! the request is that user's in every respect. A header that is not obeyed would
//! be answered with rights that nobody meant to use.

use http::HeaderMap;
use meta::Status;

use crate::api::Api;
use crate::authn::UserInfo;
use crate::authz;
use crate::pipeline::Context;
use crate::request_info::ResourceRequest;
use crate::service_tokens;

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
/// The group in which uids and extras are named.
const META_GROUP: &str = "authentication.k8s.io";
/// The user and the group of those who say nothing of themselves.
const ANONYMOUS: &str = "system:anonymous";
const UNAUTHENTICATED: &str = "system:unauthenticated";

/// Makes the request that of whom it asks to be, if its sender may.
pub(crate) fn gate(_: &Api, cx: &mut Context) -> Result<(), Status> {
    let Some(wanted) = read(&cx.headers)? else {
        return Ok(());
    };
    let groups = values(&cx.headers, GROUP);
    let uids = values(&cx.headers, UID);
    let asked = std::iter::once(("", "users", wanted.name.as_str()))
        .chain(groups.iter().map(|g| ("", "groups", g.as_str())))
        .chain(uids.iter().map(|u| (META_GROUP, "uids", u.as_str())));
    for (group, resource, name) in asked {
        allowed(&cx.user, group, resource, name)?;
    }
    for (key, values) in &wanted.extra {
        for value in values {
            let resource = format!("userextras/{key}");
            allowed(&cx.user, META_GROUP, &resource, value)?;
        }
    }
    cx.user = wanted;
    Ok(())
}

fn allowed(user: &UserInfo, group: &str, resource: &str, name: &str) -> Result<(), Status> {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let request = ResourceRequest {
        group: group.to_owned(),
        version: "v1".to_owned(),
        namespace: None,
        resource: resource.to_owned(),
        subresource: subresource.to_owned(),
        rest: Vec::new(),
        name: Some(name.to_owned()),
        name_in_path: true,
    };
    match authz::may(user, "impersonate", &request) {
        true => Ok(()),
        false => Err(authz::forbidden(user, "impersonate", &request)),
    }
}

/// Reads whom a request asks to be; `None` if it asks nothing.
fn read(headers: &HeaderMap) -> Result<Option<UserInfo>, Status> {
    let name = values(headers, USER).into_iter().next().unwrap_or_default();
    if name.is_empty() {
        let other = headers.keys().map(http::HeaderName::as_str);
        let mut other = other.filter(|h| h.starts_with("impersonate-"));
        return match other.next() {
            None => Ok(None),
            Some(header) => Err(Status::internal(format!(
                "requested {header:?} without impersonating a user"
            ))),
        };
    }
    let mut groups = values(headers, GROUP);
    if groups.is_empty() {
        groups = service_tokens::groups_of(&name);
    }
    let mut user = match name == ANONYMOUS {
        true => UserInfo {
            groups: vec![UNAUTHENTICATED.to_owned()],
            ..UserInfo::default()
        },
        false => UserInfo::new(name.clone(), groups),
    };
    user.name = name;
    user.uid = values(headers, UID).into_iter().next().unwrap_or_default();
    for header in headers.keys().filter(|h| h.as_str().starts_with(EXTRA)) {
        let key = header.as_str()[EXTRA.len()..].to_owned();
        let values = values(headers, header.as_str());
        user.extra.insert(key, values);
    }
    Ok(Some(user))
}

fn values(headers: &HeaderMap, name: &str) -> Vec<String> {
    let all = headers.get_all(name).into_iter();
    all.map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn says_whom_a_request_asks_to_be() {
        assert!(read(&headers(&[("accept", "x")])).unwrap().is_none());
        let user = read(&headers(&[
            (USER, "jane"),
            (GROUP, "a"),
            (GROUP, "b"),
            (UID, "7"),
            ("impersonate-extra-scopes", "view"),
        ]))
        .unwrap()
        .unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "7"));
        assert_eq!(user.groups, ["a", "b", "system:authenticated"]);
        assert_eq!(user.extra["scopes"], ["view"]);
    }

    #[test]
    fn a_service_account_has_its_groups_and_nobody_has_none() {
        let user = read(&headers(&[(USER, "system:serviceaccount:ns:sa")]));
        assert_eq!(
            user.unwrap().unwrap().groups,
            [
                "system:serviceaccounts",
                "system:serviceaccounts:ns",
                "system:authenticated"
            ]
        );
        let nobody = read(&headers(&[(USER, ANONYMOUS)])).unwrap().unwrap();
        assert_eq!(nobody.groups, [UNAUTHENTICATED]);
    }

    #[test]
    fn groups_alone_are_a_mistake() {
        assert!(read(&headers(&[(GROUP, "system:masters")])).is_err());
    }
}

//! Going back to an older version: announced, checked, called off.
//!
//! What is announced is part of the replicated state, as in etcd (v3_server.go,
//! `Downgrade`); it lets operators prepare, and hinders nothing here.

use mvcc::Error;
use proto::etcdserverpb::{self as pb, downgrade_request::DowngradeAction};
use tonic::Status;

use crate::{edge::plain::cluster_version, handle::Handle, rpc_error::RpcError};

/// Carries out a request; returns the version the cluster has.
pub(super) async fn answer(
    handle: &Handle,
    request: pb::DowngradeRequest,
) -> Result<String, Status> {
    match DowngradeAction::try_from(request.action) {
        Ok(DowngradeAction::Validate) => validate(handle, &request.version).await.map(drop)?,
        Ok(DowngradeAction::Enable) => {
            let (major, minor) = validate(handle, &request.version).await?;
            let target = format!("{major}.{minor}.0");
            handle.set_downgrade(Some(target)).await?;
        }
        Ok(DowngradeAction::Cancel) => {
            handle.catch_up().await?;
            if handle.downgrade()?.is_none() {
                return Err(refusal(Error::NoInflightDowngrade));
            }
            handle.set_downgrade(None).await?;
        }
        Err(_unknown) => return Err(Status::unknown("etcdserver: unknown method")),
    }
    Ok(cluster_version())
}

/// Says whether the cluster could go back to a version: one minor version, and not
/// while it already does.
async fn validate(handle: &Handle, target: &str) -> Result<(u64, u64), Status> {
    let target = minor_version(target).or_else(|| minor_version(&format!("{target}.0")));
    let target = target.ok_or_else(|| refusal(Error::WrongDowngradeVersionFormat))?;
    handle.catch_up().await?;
    let current = minor_version(&cluster_version());
    let allowed = current.and_then(|(major, minor)| Some((major, minor.checked_sub(1)?)));
    if allowed != Some(target) {
        return Err(refusal(Error::InvalidDowngradeTargetVersion));
    }
    match handle.downgrade()? {
        Some(_) => Err(refusal(Error::DowngradeInProcess)),
        None => Ok(target),
    }
}

fn refusal(error: Error) -> Status {
    RpcError::from(error).into()
}

/// Reads a semantic version as etcd's library does: three numbers, and what may
/// follow them.
fn minor_version(text: &str) -> Option<(u64, u64)> {
    let identifier = |text: &str| {
        text.bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.')
    };
    let (text, metadata) = text.split_once('+').unwrap_or((text, ""));
    let (text, pre_release) = text.split_once('-').unwrap_or((text, ""));
    let numbers: Option<Vec<u64>> = text.split('.').map(|part| part.parse().ok()).collect();
    match numbers?[..] {
        [major, minor, _] if identifier(metadata) && identifier(pre_release) => {
            Some((major, minor))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_etcd_reads_them() {
        for good in ["3.4.0", "3.4.17", "03.4.0", "3.4.0-rc.1", "3.4.0-rc.1+x"] {
            assert_eq!(minor_version(good), Some((3, 4)), "{good}");
        }
        for bad in ["", "3", "3.4", "v3.4.0", "3.4.0.0", "3.4.0-!", "3.x.0"] {
            assert_eq!(minor_version(bad), None, "{bad}");
        }
    }
}

//! One line of a file that holds a history.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    ApiOpen, ApiSaid, Call, Fault, Final, Held, ListTxn, Op, SetOp, Time, Told, WatchRequest,
};

/// Is one line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// What the run was; first, if it is there.
    About(About),
    /// An operation.
    Op(Op),
    /// A watch begins.
    Open(WatchOpen),
    /// A watch is told something.
    Told(WatchTold),
    /// A transaction on lists.
    List(ListTxn),
    /// Something done with a set.
    Set(SetOp),
    /// A lock was held.
    Held(Held),
    /// Something was done to the cluster.
    Fault(Fault),
    /// What a member says at the end.
    Final(Final),
    /// A request to an API server.
    Call(Call),
    /// A watch on an API server begins.
    ApiOpen(ApiOpen),
    /// It is told something.
    ApiSaid(ApiSaid),
}

/// Says what a run was.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct About {
    /// In a few words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// What was tested.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub target: String,
    /// The command that does it again.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub command: String,
    /// The seed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// How many members there were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub members: Option<u8>,
    /// The verdicts that are known to be right, by checker: the anomaly's name, or
    /// `valid`. Histories kept to test the checkers have this.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub expect: BTreeMap<String, String>,
}

/// Says that a watch begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchOpen {
    /// See [`super::Watch::id`].
    pub id: u64,
    /// Who watches.
    pub process: u32,
    /// Which member was asked.
    #[serde(default)]
    pub member: u8,
    /// As which user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Arc<str>>,
    /// When.
    pub at: Time,
    /// What was asked for.
    pub request: WatchRequest,
    /// See [`super::Watch::whole`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub whole: bool,
}

/// Says that a watch was told something.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchTold {
    /// Which watch.
    pub id: u64,
    /// When.
    pub at: Time,
    /// What.
    pub said: Told,
}

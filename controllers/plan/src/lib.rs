//! The controllers' decisions: what is observed goes in, what to write comes
//! out, and nothing else happens.
//!
//! Every controller is a function of the objects it can see and the time it is
//! told. It holds no client, no queue and no clock, so one run is one value that
//! a test can read, and a simulated world can apply the same writes as the real
//! API server. The crate `manager` feeds these functions from informers and
//! performs what they answer.
//!
//! The vocabulary of an answer is [`Write`]: one API request, or one event for
//! people. A plan is level-triggered: run again on the state its writes lead to,
//! it answers nothing.
//!
//! Deliberately absent: expectations and queues (crate `client`), retries and
//! leader election (crate `manager`).

pub mod deployment;
pub mod gc;
pub mod hash;
pub mod namespace;
pub mod node;
pub mod object;
pub mod pod;
pub mod podgc;
pub mod replicaset;
pub mod rounding;
pub mod serviceaccount;
pub mod write;

pub use write::{EventType, Propagation, Target, Write};

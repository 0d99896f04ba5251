//! Clusters of real processes, and everything that can be done to them.
//!
//! A [`Cluster`] is members of any store that takes etcd's flags, each a process in
//! a network namespace of its own ([`Lan`]) or on ports of the loopback address. What
//! hurts them is one room each: signals ([`process`]), packets ([`lan`]), bytes on
//! their way ([`relay`]), disks ([`small_disk`], [`faultfs`]), bytes at rest
//! ([`corrupt`]), clocks ([`clock`]). A [`nemesis`] uses these: it can be drawn by a
//! seed, started, healed and described.
//!
//! Nothing here knows what the clients do, or judges what they saw. Whatever this
//! machine has no means for says so with [`Error::Missing`], and nothing else
//! pretends to have done it.

pub mod bed;
pub mod client;
pub mod clock;
pub mod cluster;
pub mod corrupt;
mod error;
pub mod faultfs;
pub mod lan;
pub mod nemesis;
pub mod process;
pub mod relay;
pub mod small_disk;
mod wait;

pub use bed::{Bed, Ground};
pub use client::{Client, runtime};
pub use cluster::{Cluster, Member, Target};
pub use error::{Error, Result};
pub use faultfs::FaultFs;
pub use lan::{Cut, Lan, Packets};
pub use nemesis::{Kind, Nemesis};
pub use process::Process;
pub use relay::Relay;
pub use small_disk::SmallDisk;
pub use wait::{PATIENCE, until};

//! prezerod: zeroed, populated huge pages for VMs, DPDK, caches and databases.
//!
//! The daemon keeps a *stock* of inodes that the kernel zeroed and a filler populated in idle
//! time, and *leases* them: hands one to a client, once, and keeps nothing of it. A client needs
//! [`client`] and [`protocol`] only; the rest is the daemon.
//!
//! # Vocabulary
//!
//! | word | meaning |
//! |---|---|
//! | lease | a sealed, populated inode in a client's hands; its memory dies with its last user |
//! | parked lease | one that is a file under a name instead, and dies when the file is removed |
//! | blank | an inode that is populated and was never handed out |
//! | stock | all blanks; a *shelf* of the demand is one size as one user asks for it |
//! | kind | page size, backing and NUMA node: inodes of one kind differ in size only |
//! | tenant | clients that share a quota and a rank, told by user, group and cgroup |
//! | filler | a process that populates, *idle* for the stock or *urgent* for a client that waits |
//! | hit, miss | a request served from stock at once; one for which nothing was ready |
//! | waste | bytes made and given back unused |
//!
//! # Who does what
//!
//! `server` is one thread and one `poll`: it moves packets and inodes. [`broker`] decides, and is
//! told the time: `stock`, `demand`, `tenant` and `settings` are its nouns, `host` what the machine
//! offers. [`filler`] is the other process. [`trial`] plays [`demand`] in made-up time, [`fleet`] on many hosts. Modules
//! import downwards only, `server` on top.
//!
//! # What may go wrong
//!
//! A client may send anything, vanish at any moment and never read: it harms its own connection
//! only. A filler may be killed: its job fails, its client is told. The broker may be killed:
//! leases live on, stock goes back to the kernel, the next broker starts with nothing or with what
//! an orderly stop has stored. No inode has two owners in any of these (`inode`, on seals).
#![deny(unsafe_code)]
#![warn(missing_debug_implementations)]

#[cfg(feature = "broker")]
pub mod audit;
#[cfg(feature = "broker")]
pub mod broker;
#[cfg(feature = "broker")]
pub mod cgroup;
pub mod client;
#[cfg(feature = "broker")]
pub mod counters;
#[cfg(feature = "broker")]
pub mod debts;
#[cfg(feature = "broker")]
pub mod demand;
#[cfg(feature = "broker")]
pub mod files;
#[cfg(feature = "broker")]
pub mod filler;
#[cfg(feature = "broker")]
pub mod fleet;
#[cfg(feature = "broker")]
pub mod gait;
#[cfg(feature = "broker")]
pub mod host;
#[cfg(feature = "broker")]
pub mod inode;
#[cfg(feature = "broker")]
pub mod living;
#[cfg(feature = "broker")]
pub mod mounted;
#[cfg(feature = "broker")]
pub mod neighbours;
#[cfg(feature = "broker")]
pub mod owners;
#[cfg(feature = "broker")]
pub mod parked;
pub mod protocol;
#[cfg(feature = "broker")]
pub mod rest;
#[cfg(feature = "broker")]
pub mod server;
#[cfg(feature = "broker")]
pub mod service;
#[cfg(feature = "broker")]
pub mod settings;
pub mod shown;
#[cfg(feature = "broker")]
pub mod start;
#[cfg(feature = "broker")]
pub mod stock;
#[cfg(feature = "broker")]
pub mod tenant;
#[cfg(feature = "broker")]
pub mod trial;

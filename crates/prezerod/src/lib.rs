//! prezerod: zeroed, populated huge pages for VMs, DPDK, caches and databases.
//!
//! The daemon keeps a *stock* of inodes that the kernel zeroed and a filler populated in idle
//! time, and *leases* them: hands one to a client, once, and keeps nothing of it. A client needs
//! [`client`] and [`protocol`] only; the rest is the daemon.
//!
//! Layers: persist, protocol, client, host, tenant, inode, filler, settings, stock, demand, ledger, planner, broker, server
//!
//! # Vocabulary
//!
//! | word | meaning | known from |
//! |---|---|---|
//! | lease | a sealed, populated inode in a client's hands; its memory dies with its last user | |
//! | named lease | one that is a file under a name instead, and dies when the file is removed | |
//! | stock inode | an inode that is populated and was never handed out | inventory control |
//! | stock | all stock inodes | inventory control |
//! | demand bucket | the requests of one user for one size, which drain at the pace of the fillers | leaky bucket |
//! | backorder | a lease that a client was told to come back for | inventory control |
//! | kind | page size, backing and NUMA node: inodes of one kind differ in size only | |
//! | tenant | clients that share a quota and a rank, told by user, group and cgroup | |
//! | charge | the cgroup and the directories that a tenant's memory is charged to | memory cgroups |
//! | filler | a process that populates, *idle* for the stock or *urgent* for a client that waits | |
//! | pacer | decides when an idle filler may take its next step | BBR, writeback |
//! | lease tracker | watches the memory of leases by inode marks | fanotify |
//! | debt | memory of ended leases that the kernel has not got back | |
//! | shortage | why a size that should lie ready does not | |
//! | hit, miss | a request served from stock at once; one for which nothing was ready | caches |
//! | waste | bytes made and given back unused | |
//!
//! # What does what
//!
//! `server` is one thread and one `poll`: it moves packets and inodes. [`broker`] decides, and is
//! told the time. It has three owners: the [`ledger`] of leases, the [`planner`] of what is wanted and made,
//! and the [`stock`] of what lies ready. `settings` is what operators say, `host` what the machine offers. [`filler`] is the other process. Another crate, `prezerod-fleet`, plays [`demand`] in made-up time.
//!
//! # What may go wrong
//!
//! A client may send anything, vanish at any moment and never read: it harms its own connection
//! only. A filler may be killed: its job fails, its client is told. The broker may be killed:
//! leases live on, the next broker starts with the state file ([`persist`]) and, under systemd, with the
//! stock. No inode has two owners in any of these (`inode`, on seals).
#![deny(unsafe_code)]
#![warn(missing_debug_implementations)]

#[cfg(feature = "broker")]
pub mod broker;
pub mod client;
#[cfg(feature = "broker")]
pub mod demand;
#[cfg(feature = "broker")]
pub mod filler;
#[cfg(feature = "broker")]
pub mod host;
#[cfg(feature = "broker")]
pub mod inode;
#[cfg(feature = "broker")]
pub mod ledger;
#[cfg(feature = "broker")]
pub mod persist;
#[cfg(feature = "broker")]
pub mod planner;
pub mod protocol;
#[cfg(feature = "broker")]
pub mod server;
#[cfg(feature = "broker")]
pub mod settings;
#[cfg(feature = "broker")]
pub mod stock;
#[cfg(feature = "broker")]
pub mod tenant;

//! prezerod: zeroed, populated huge pages for VMs, DPDK, JVMs and databases.
#![deny(unsafe_code)]
#![warn(missing_debug_implementations)]

pub mod audit;
pub mod broker;
pub mod client;
pub mod counters;
pub mod demand;
pub mod filler;
pub mod host;
pub mod inode;
pub mod protocol;
pub mod rest;
pub mod server;
pub mod service;
pub mod settings;
pub mod stock;
pub mod tenant;

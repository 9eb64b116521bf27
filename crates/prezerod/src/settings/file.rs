//! The file as it is written, and how it becomes settings.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use prezero_host::Size;
use prezero_sys::escape::is_plain;
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

use super::{Settings, Source, Stocked};
use crate::filler::pacer::BusyLimit;
use crate::host::accounts::look_up;
use crate::inode::audit::Depth;
use crate::protocol::{Page, Want};
use crate::tenant::{Charge, Rank, Tenant};

/// Pieces of 4 KiB that an audit reads by default, besides the first and the last.
/// Moved by: `bench lease`, small leases.
const SAMPLE: u32 = 8;
/// Seconds after which a request is forgotten: the next of an hourly batch comes before.
/// Moved by: `bench fleet`.
const FORGET: f64 = 4500.0;
/// Percent of a node's CPU time in which stock is made while other programs keep it busy. Without such a
/// part a host that is never idle has no stock, and each start waits for one made to order.
/// Moved by: `tests/system/busy.py`.
const CPU_BUSY: u32 = 5;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct File {
    socket: Option<PathBuf>,
    socket_mode: String,
    metrics: Option<String>,
    backing: Source,
    limit: Option<Bytes>,
    rate: Option<Bytes>,
    rate_busy: Option<Bytes>,
    cpu_busy: Option<u32>,
    reserve: Bytes,
    audit: Audit,
    forget: Seconds,
    longest_wait: Seconds,
    idle: Seconds,
    connections: usize,
    connections_per_user: usize,
    stock: Vec<FileStock>,
    tenant: Vec<FileTenant>,
}

impl Default for File {
    fn default() -> File {
        File {
            socket: None,
            socket_mode: "0666".into(),
            metrics: None,
            backing: Source::Auto,
            limit: None,
            rate: None,
            rate_busy: None,
            cpu_busy: None,
            reserve: Bytes(0),
            audit: Audit::Sample,
            forget: Seconds(FORGET),
            longest_wait: Seconds(600.0),
            idle: Seconds(300.0),
            connections: 1024,
            connections_per_user: 256,
            stock: vec![],
            tenant: vec![],
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Audit {
    Off,
    Sample,
    Full,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FileStock {
    size: Bytes,
    page: Option<Bytes>,
    node: Option<u16>,
    tenant: Option<String>,
    keep: u64,
    most: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FileTenant {
    name: String,
    #[serde(default)]
    users: Vec<Account>,
    #[serde(default)]
    groups: Vec<Account>,
    #[serde(default)]
    cgroups: Vec<String>,
    quota: Option<Bytes>,
    charge: Option<String>,
    #[serde(default)]
    files: Vec<PathBuf>,
    #[serde(default)]
    latency: Rank,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "an account: a name, \"root\", or a number from 0 up")]
enum Account {
    Number(u32),
    Name(String),
}

#[derive(Clone, Copy)]
struct Bytes(u64);

#[derive(Clone, Copy, Deserialize)]
struct Seconds(f64);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Bytes;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size: bytes, or a string such as \"64M\" or \"1.5G\"")
            }
            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Bytes, E> {
                let bytes = u64::try_from(bytes);
                bytes.map(Bytes).map_err(|_| E::custom("a size cannot be negative"))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Bytes, E> {
                let size =
                    text.parse::<Size>().map_err(|mend| E::custom(format!("{text}: {mend}")));
                size.map(|size| Bytes(size.0 as u64))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

impl Settings {
    pub(super) fn from_file(file: File, root: &Path) -> Result<Settings, String> {
        let time = |name: &str, Seconds(seconds): Seconds| {
            Duration::try_from_secs_f64(seconds)
                .ok()
                .filter(|time| {
                    (Duration::from_millis(1)..=Duration::from_secs(31_536_000)).contains(time)
                })
                .ok_or_else(|| {
                    format!("{name} = {seconds}: give seconds, 0.001 to 31536000 (a year)")
                })
        };
        if let Some(metrics) = &file.metrics {
            let local = metrics.parse::<std::net::SocketAddr>().is_ok_and(|a| a.ip().is_loopback());
            if !local && !metrics.starts_with('/') {
                return Err(format!(
                    "metrics = {metrics:?}: give an absolute path or a loopback address, \"127.0.0.1:9464\""
                ));
            }
        }
        let tenants = file
            .tenant
            .into_iter()
            .map(|tenant| tenant_of(tenant, root))
            .collect::<Result<Vec<_>, _>>()?;
        let twice = |(n, tenant): (usize, &Tenant)| {
            tenants[..n].iter().any(|other| other.name == tenant.name).then(|| tenant.name.clone())
        };
        if let Some(name) = tenants.iter().enumerate().find_map(twice) {
            return Err(format!("tenant {name}: named twice; put its users into one [[tenant]]"));
        }
        if let Some(socket) = file.socket.as_ref().filter(|socket| !socket.is_absolute()) {
            return Err(format!("socket = {socket:?}: give an absolute path"));
        }
        let socket_mode =
            u32::from_str_radix(&file.socket_mode, 8).ok().filter(|mode| *mode <= 0o777);
        Ok(Settings {
            socket_mode: socket_mode.ok_or_else(|| {
                format!("socket-mode = {:?}: give permission bits, \"0666\"", file.socket_mode)
            })?,
            socket: file.socket,
            metrics: file.metrics,
            backing: file.backing,
            limit: file.limit.map(|Bytes(limit)| limit),
            rate: file.rate.map(|rate| pace("rate", rate)).transpose()?,
            busy_limit: busy_limit(file.cpu_busy, file.rate_busy)?,
            reserve: file.reserve.0,
            audit: match file.audit {
                Audit::Off => Depth::Off,
                Audit::Sample => Depth::Sample(SAMPLE),
                Audit::Full => Depth::Full,
            },
            forget: time("forget", file.forget)?,
            longest_wait: time("longest-wait", file.longest_wait)?,
            idle: time("idle", file.idle)?,
            connections: some("connections", file.connections)?,
            connections_per_user: some("connections-per-user", file.connections_per_user)?,
            stock: file
                .stock
                .into_iter()
                .map(|stock| stocked(stock, &tenants))
                .collect::<Result<_, _>>()?,
            tenants,
        })
    }
}

fn some(name: &str, most: usize) -> Result<usize, String> {
    let none = || format!("{name} = 0: nobody could connect; give 1 or more, or leave it out");
    (most > 0).then_some(most).ok_or_else(none)
}

/// How much while others work.
fn busy_limit(percent: Option<u32>, rate: Option<Bytes>) -> Result<BusyLimit, String> {
    match (percent, rate) {
        (Some(_), Some(_)) => {
            Err("cpu-busy and rate-busy say the same of a busy host; give one of both".into())
        }
        (None, Some(rate)) => Ok(BusyLimit::Rate(pace("rate-busy", rate)?)),
        (Some(percent), None) if percent > 100 => {
            Err(format!("cpu-busy = {percent}: give percent of the CPUs, 0 to 100"))
        }
        (percent, None) => Ok(BusyLimit::Cpu(percent.unwrap_or(CPU_BUSY))),
    }
}

/// Bytes a second.
fn pace(name: &str, Bytes(rate): Bytes) -> Result<u64, String> {
    if rate < Page::Huge.bytes() {
        return Err(format!(
            "{name} = {rate}: less than a page; give \"2M\" or more, or leave it out"
        ));
    }
    Ok(rate)
}

fn stocked(stock: FileStock, tenants: &[Tenant]) -> Result<Stocked, String> {
    let Bytes(bytes) = stock.size;
    let page = match stock.page {
        None => Page::Huge,
        Some(Bytes(page)) => Page::of(page).ok_or("stock: page: give \"2M\" or \"1G\"")?,
    };
    if bytes == 0 || !bytes.is_multiple_of(page.bytes()) {
        let size = Size(bytes as usize);
        return Err(format!("stock: size = {size}: give a multiple of its page, {page}"));
    }
    let most = stock.most.unwrap_or(u64::MAX);
    if most < stock.keep {
        return Err(format!("stock: most = {most}: less than keep = {}", stock.keep));
    }
    if let Some(name) =
        stock.tenant.as_ref().filter(|name| !tenants.iter().any(|t| t.name == **name))
    {
        return Err(format!("stock: tenant = {name:?}: no [[tenant]] has that name"));
    }
    let want = Want { bytes, page, node: stock.node };
    Ok(Stocked { want, tenant: stock.tenant, keep: stock.keep, most })
}

fn tenant_of(tenant: FileTenant, root: &Path) -> Result<Tenant, String> {
    let FileTenant { name, users, groups, cgroups, quota, charge, files, latency } = tenant;
    // It stands in tables and answers of one line.
    if name.is_empty() || !name.chars().all(is_plain) {
        return Err(format!("tenant {name:?}: give a name of letters, digits and the like"));
    }
    if users.is_empty() && groups.is_empty() && cgroups.is_empty() {
        return Err(format!("tenant {name}: names nobody; give users, groups or cgroups"));
    }
    if let Some(path) = cgroups.iter().find(|path| !path.starts_with('/')) {
        return Err(format!(
            "tenant {name}: cgroup {path:?}: give the path from the root, \"/{path}\""
        ));
    }
    let plain = |path: &str| path.starts_with('/') && !path.split('/').any(|part| part == "..");
    if let Some(path) = charge.as_ref().filter(|path| !plain(path) || path.len() < 2) {
        return Err(format!(
            "tenant {name}: charge = {path:?}: give the path of a cgroup from the root, \"/vms\""
        ));
    }
    if let Some(dir) = files.iter().find(|dir| !dir.is_absolute()) {
        return Err(format!("tenant {name}: files = {dir:?}: give absolute paths of directories"));
    }
    let numbers = |accounts: Vec<Account>, table: &str| {
        let number = |account| match account {
            Account::Number(number) => Ok(number),
            Account::Name(account) => look_up(&root.join(table), &account).ok_or_else(|| {
                format!("tenant {name}: {account:?} is not in /{table}; give the number")
            }),
        };
        accounts.into_iter().map(number).collect::<Result<Vec<_>, _>>()
    };
    Ok(Tenant {
        uids: numbers(users, "etc/passwd")?,
        gids: numbers(groups, "etc/group")?,
        cgroups,
        quota: quota.map(|Bytes(quota)| quota),
        rank: latency,
        charge: Charge { cgroup: charge, files },
        name,
    })
}

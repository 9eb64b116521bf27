//! How the file's words become settings.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use prezero_host::Size;
use prezero_sys::escape::is_plain;
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

use super::Stocked;
use crate::host::accounts::look_up;
use crate::protocol::{Page, Want};
use crate::tenant::{Charge, Rank, Tenant};

/// The tenants of a file, which are read apart: they name accounts of the host.
#[derive(Deserialize)]
pub(super) struct Tenants {
    #[serde(default)]
    pub tenant: Vec<FileTenant>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct FileStock {
    size: Bytes,
    page: Option<Bytes>,
    node: Option<u16>,
    tenant: Option<String>,
    keep: u64,
    most: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct FileTenant {
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

/// A size.
pub(super) fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    Bytes::deserialize(from).map(|Bytes(bytes)| bytes)
}

/// The same of a key that may be left out.
pub(super) fn some_bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    bytes(from).map(Some)
}

/// A time.
pub(super) fn seconds<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let seconds = f64::deserialize(from)?;
    let wrong = |_| de::Error::custom(format!("{seconds}: give seconds"));
    Duration::try_from_secs_f64(seconds).map_err(wrong)
}

/// Permission bits.
pub(super) fn permissions<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let bits = String::deserialize(from)?;
    let mode = u32::from_str_radix(&bits, 8).ok().filter(|mode| *mode <= 0o777);
    let wrong =
        || de::Error::custom(format!("socket-mode = {bits:?}: give permission bits, \"0666\""));
    mode.ok_or_else(wrong)
}

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

impl TryFrom<FileStock> for Stocked {
    type Error = String;

    fn try_from(stock: FileStock) -> Result<Stocked, String> {
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
        let want = Want { bytes, page, node: stock.node };
        Ok(Stocked { want, tenant: stock.tenant, keep: stock.keep, most })
    }
}

/// A tenant, with accounts of the host below `root`.
pub(super) fn tenant_of(tenant: FileTenant, root: &Path) -> Result<Tenant, String> {
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

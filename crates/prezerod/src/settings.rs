//! The configuration: one TOML file, of which every key has a default.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use prezero::Size;
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

use crate::audit::Depth;
use crate::demand::Keep;
use crate::protocol::{Page, Want};
use crate::tenant::{Rank, Tenant};

/// Pieces of 4 KiB that an audit reads by default, besides the first and the last: 12 us a lease.
const SAMPLE: u32 = 8;

/// Where pages may come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The hugetlb pool, and transparent huge pages where it has too few.
    Auto,
    /// The hugetlb pool only.
    Hugetlb,
    /// Transparent huge pages only.
    Thp,
}

/// Everything an operator may set.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// The socket for clients; `None`: `prezero/prezerod.sock` in the run-time directory.
    pub socket: Option<PathBuf>,
    /// Its permission bits.
    pub socket_mode: u32,
    /// Where metrics are served: an absolute path, or an address on the loopback interface.
    pub metrics: Option<String>,
    /// See there.
    pub backing: Source,
    /// Most bytes of stock; `None`: an eighth of memory, three quarters of a hugetlb pool.
    pub limit: Option<u64>,
    /// Most bytes zeroed a second for stock; `None`: as fast as an idle CPU does it.
    pub rate: Option<u64>,
    /// Bytes of each page size and node that only critical tenants may have.
    pub reserve: u64,
    /// How much is read before a lease.
    pub audit: Depth,
    /// After so long half of a past demand is forgotten.
    pub forget: Duration,
    /// Longest that a request may wait.
    pub longest_wait: Duration,
    /// Longest that a reservation is kept.
    pub longest_hold: Duration,
    /// After so long without a word a connection that waits for nothing is closed.
    pub idle: Duration,
    /// Most connections at a time, and of one user.
    pub connections: usize,
    /// See `connections`.
    pub connections_per_user: usize,
    /// What should lie ready whoever asks.
    pub stock: Vec<Keep>,
    /// Who may lease; empty: the broker's own user and root.
    pub tenants: Vec<Tenant>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
struct File {
    socket: Option<PathBuf>,
    socket_mode: String,
    metrics: Option<String>,
    backing: Source,
    limit: Option<Bytes>,
    rate: Option<Bytes>,
    reserve: Bytes,
    audit: Audit,
    forget: Seconds,
    longest_wait: Seconds,
    longest_hold: Seconds,
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
            reserve: Bytes(0),
            audit: Audit::Sample,
            forget: Seconds(3600.0),
            longest_wait: Seconds(600.0),
            longest_hold: Seconds(60.0),
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
    #[serde(default)]
    latency: Latency,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
enum Latency {
    #[default]
    Normal,
    Critical,
}

#[derive(Deserialize)]
#[serde(untagged)]
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

/// What is wrong with a file, in one line with the mend.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{place}: {what}")]
pub struct SettingsError {
    place: String,
    what: String,
}

impl Settings {
    /// What holds without a file.
    pub fn standard() -> Settings {
        // Nothing in the defaults can be wrong: a test reads them.
        Settings::from_file(File::default(), Path::new("/")).unwrap_or_else(|what| panic!("{what}"))
    }

    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong, in one line.
    pub fn read(path: &Path) -> Result<Settings, SettingsError> {
        let place = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| SettingsError { place: place.clone(), what: error.to_string() })?;
        let info = path.metadata();
        if info.is_ok_and(|info| info.mode() & 0o002 != 0) {
            let what = "everybody may write it, so anybody could give himself memory; chmod o-w";
            return Err(SettingsError { place, what: what.into() });
        }
        Settings::parse(&text, &place, Path::new("/"))
    }

    /// Reads a text; `place` names it in errors, accounts are looked up below `root`.
    ///
    /// # Errors
    /// What is wrong, in one line.
    pub fn parse(text: &str, place: &str, root: &Path) -> Result<Settings, SettingsError> {
        let file: File = toml::from_str(text).map_err(|error| {
            let line = error
                .span()
                .map(|span| text.bytes().take(span.start).filter(|&b| b == b'\n').count() + 1);
            let line = line.map_or(String::new(), |line| format!(":{line}"));
            let words: Vec<_> = error.message().split_whitespace().collect();
            SettingsError { place: format!("{place}{line}"), what: words.join(" ") }
        })?;
        Settings::from_file(file, root)
            .map_err(|what| SettingsError { place: place.to_owned(), what })
    }

    fn from_file(file: File, root: &Path) -> Result<Settings, String> {
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
            rate: match file.rate {
                Some(Bytes(rate)) if rate < 2 << 20 => {
                    return Err(format!(
                        "rate = {rate}: less than a page; give \"2M\" or more, or leave it out"
                    ));
                }
                rate => rate.map(|Bytes(rate)| rate),
            },
            reserve: file.reserve.0,
            audit: match file.audit {
                Audit::Off => Depth::Off,
                Audit::Sample => Depth::Sample(SAMPLE),
                Audit::Full => Depth::Full,
            },
            forget: time("forget", file.forget)?,
            longest_wait: time("longest-wait", file.longest_wait)?,
            longest_hold: time("longest-hold", file.longest_hold)?,
            idle: time("idle", file.idle)?,
            connections: file.connections.max(1),
            connections_per_user: file.connections_per_user.max(1),
            stock: file.stock.into_iter().map(keep).collect::<Result<_, _>>()?,
            tenants: file
                .tenant
                .into_iter()
                .map(|tenant| tenant_of(tenant, root))
                .collect::<Result<_, _>>()?,
        })
    }
}

fn keep(stock: FileStock) -> Result<Keep, String> {
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
    Ok(Keep { want: Want { bytes, page, node: stock.node }, keep: stock.keep, most })
}

fn tenant_of(tenant: FileTenant, root: &Path) -> Result<Tenant, String> {
    let FileTenant { name, users, groups, cgroups, quota, latency } = tenant;
    if users.is_empty() && groups.is_empty() && cgroups.is_empty() {
        return Err(format!("tenant {name}: names nobody; give users, groups or cgroups"));
    }
    if let Some(path) = cgroups.iter().find(|path| !path.starts_with('/')) {
        return Err(format!(
            "tenant {name}: cgroup {path:?}: give the path from the root, \"/{path}\""
        ));
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
        rank: match latency {
            Latency::Normal => Rank::Normal,
            Latency::Critical => Rank::Critical,
        },
        name,
    })
}

/// The number of an account in a table such as `/etc/passwd`.
fn look_up(table: &Path, name: &str) -> Option<u32> {
    let text = std::fs::read_to_string(table).ok()?;
    let mut rows = text.lines().map(|line| line.split(':'));
    rows.find_map(|mut row| (row.next() == Some(name)).then(|| row.nth(1)?.parse().ok())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Settings, String> {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("etc")).unwrap();
        std::fs::write(root.path().join("etc/passwd"), "root:x:0:0::/:\nqemu:x:107:64:::\n")
            .unwrap();
        std::fs::write(root.path().join("etc/group"), "kvm:x:64:qemu\n").unwrap();
        Settings::parse(text, "f.toml", root.path()).map_err(|error| error.to_string())
    }

    #[test]
    fn an_empty_file_is_the_standard() {
        assert_eq!(parse("").unwrap(), Settings::standard());
    }

    #[test]
    fn the_example_that_is_shipped_is_read() {
        let settings = parse(include_str!("../prezerod.toml")).unwrap();
        assert!(!settings.stock.is_empty() && !settings.tenants.is_empty());
    }

    #[test]
    fn what_is_written_is_what_holds() {
        let settings = parse(
            "limit = \"8G\"\nreserve = 4194304\naudit = \"full\"\n\
             [[stock]]\nsize = \"4G\"\nkeep = 2\n\
             [[tenant]]\nname = \"vms\"\nusers = [\"qemu\", 12]\ngroups = [\"kvm\"]\n\
             quota = \"64G\"\nlatency = \"critical\"\n",
        );
        let settings = settings.unwrap();
        assert_eq!((settings.limit, settings.reserve), (Some(8 << 30), 4 << 20));
        assert_eq!(settings.audit, Depth::Full);
        let want = Want { bytes: 4 << 30, page: Page::Huge, node: None };
        assert_eq!(settings.stock, [Keep { want, keep: 2, most: u64::MAX }]);
        let [vms] = &settings.tenants[..] else { panic!("{:?}", settings.tenants) };
        assert_eq!((&vms.uids[..], &vms.gids[..]), (&[107, 12][..], &[64][..]));
        assert_eq!((vms.quota, vms.rank), (Some(64 << 30), Rank::Critical));
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line_with_place_and_mend() {
        for (text, parts) in [
            ("\nlimits = 1\n", &["f.toml:2: ", "unknown field `limits`"][..]),
            ("limit = \"lots\"", &["f.toml:1: ", "lots", "64K, 1.5G"]),
            ("limit = -1", &["negative"]),
            ("= 3", &["f.toml:1: "]),
            ("rate = \"1M\"", &["rate", "give \"2M\" or more"]),
            ("forget = 0", &["forget = 0", "give seconds"]),
            ("socket-mode = \"9\"", &["socket-mode", "0666"]),
            ("metrics = \"0.0.0.0:80\"", &["loopback"]),
            ("[[stock]]\nsize = \"3M\"\nkeep = 1", &["size = 3M", "multiple of its page, 2M"]),
            ("[[stock]]\nsize = \"2M\"\npage = \"4K\"\nkeep = 1", &["give \"2M\" or \"1G\""]),
            ("[[stock]]\nsize = \"2M\"\nkeep = 3\nmost = 2", &["less than keep = 3"]),
            ("[[tenant]]\nname = \"a\"", &["tenant a", "names nobody"]),
            ("[[tenant]]\nname = \"a\"\nusers = [\"who\"]", &["\"who\"", "give the number"]),
            ("[[tenant]]\nname = \"a\"\ncgroups = [\"b\"]", &["\"b\"", "\"/b\""]),
        ] {
            let message = parse(text).unwrap_err();
            assert!(message.starts_with("f.toml") && !message.contains('\n'), "{message}");
            for part in parts {
                assert!(message.contains(part), "{message:?} lacks {part:?}");
            }
        }
    }
}

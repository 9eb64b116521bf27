//! The configuration: one TOML file, of which every key has a default.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::filler::pacer::BusyLimit;
use crate::inode::audit::Depth;
use crate::protocol::{Page, Want};
use crate::tenant::Tenant;

mod file;

use file::{Tenants, tenant_of};

/// The time after which a request is forgotten: the next of an hourly batch comes before.
/// Moved by: `bench fleet`.
const FORGET: Duration = Duration::from_secs(4500);
/// Percent of a node's CPU time in which stock is made while other programs keep it busy. Without such a
/// part a host that is never idle has no stock, and each start waits for one made to order.
/// Moved by: `tests/system/busy.py`.
const CPU_BUSY: u32 = 5;

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
    /// Transparent huge pages of a tmpfs mounted `huge=always`: for kernels older than 6.1.
    Tmpfs,
}

/// What an operator keeps ready.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "file::FileStock")]
pub struct Stocked {
    /// Such leases.
    pub want: Want,
    /// For this tenant, whose cgroup pays; `None`: the broker's does.
    pub tenant: Option<String>,
    /// The least.
    pub keep: u64,
    /// The most.
    pub most: u64,
}

/// Everything an operator may set.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Settings {
    /// The socket for clients; `None`: `prezero/prezerod.sock` in the run-time directory.
    pub socket: Option<PathBuf>,
    /// Its permission bits.
    #[serde(deserialize_with = "file::permissions")]
    pub socket_mode: u32,
    /// Where metrics are served: an absolute path, or an address on the loopback interface.
    pub metrics: Option<String>,
    /// See there.
    pub backing: Source,
    /// Most bytes of stock; `None`: an eighth of memory, three quarters of a hugetlb pool but at least a page.
    #[serde(deserialize_with = "file::some_bytes")]
    pub limit: Option<u64>,
    /// Most bytes zeroed a second for stock; `None`: as fast as an idle CPU does it.
    #[serde(deserialize_with = "file::some_bytes")]
    pub rate: Option<u64>,
    /// See [`Settings::busy_limit`].
    cpu_busy: Option<u32>,
    #[serde(deserialize_with = "file::some_bytes")]
    rate_busy: Option<u64>,
    /// Bytes of each page size and node that only critical tenants may have.
    #[serde(deserialize_with = "file::bytes")]
    pub reserve: u64,
    /// How much is read before a lease.
    pub audit: Depth,
    /// The time for which the stock learns from a request.
    #[serde(deserialize_with = "file::seconds")]
    pub forget: Duration,
    /// Longest that a request may wait.
    #[serde(deserialize_with = "file::seconds")]
    pub longest_wait: Duration,
    /// The time without a frame after which a connection that waits for nothing is closed.
    #[serde(deserialize_with = "file::seconds")]
    pub idle: Duration,
    /// Most connections at a time, and of one user.
    pub connections: usize,
    /// See `connections`.
    pub connections_per_user: usize,
    /// What an operator keeps ready.
    pub stock: Vec<Stocked>,
    /// The tenants that may lease; empty: the broker's own user and root.
    #[serde(skip)]
    pub tenants: Vec<Tenant>,
    /// What they are read of.
    tenant: IgnoredAny,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            socket: None,
            socket_mode: 0o666,
            metrics: None,
            backing: Source::Auto,
            limit: None,
            rate: None,
            cpu_busy: None,
            rate_busy: None,
            reserve: 0,
            audit: Depth::Sample,
            forget: FORGET,
            longest_wait: Duration::from_secs(600),
            idle: Duration::from_secs(300),
            connections: 1024,
            connections_per_user: 256,
            stock: vec![],
            tenants: vec![],
            tenant: IgnoredAny,
        }
    }
}

impl Settings {
    /// How much is made for stock while others keep more than half a CPU of a node busy.
    pub fn busy_limit(&self) -> BusyLimit {
        let percent = || BusyLimit::Cpu(self.cpu_busy.unwrap_or(CPU_BUSY));
        self.rate_busy.map_or_else(percent, BusyLimit::Rate)
    }

    /// Keys that differ from those `before` and are read at the start only.
    pub fn need_restart(&self, before: &Settings) -> impl Iterator<Item = &'static str> {
        let keys = [
            ("socket", self.socket != before.socket),
            ("socket-mode", self.socket_mode != before.socket_mode),
            ("metrics", self.metrics != before.metrics),
        ];
        keys.into_iter().filter_map(|(key, changed)| changed.then_some(key))
    }

    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong, in one line.
    pub fn read(path: &Path) -> Result<Settings, String> {
        let place = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| format!("{place}: {error}"))?;
        if path.metadata().is_ok_and(|info| info.mode() & 0o002 != 0) {
            let what = "everybody may write it, so anybody could give himself memory; chmod o-w";
            return Err(format!("{place}: {what}"));
        }
        Settings::parse(&text, &place, Path::new("/"))
    }

    /// Reads a text; `place` names it in errors, accounts are looked up below `root`.
    ///
    /// # Errors
    /// What is wrong, in one line.
    pub fn parse(text: &str, place: &str, root: &Path) -> Result<Settings, String> {
        let wrong = |error: toml::de::Error| {
            let line = error
                .span()
                .map(|span| text.bytes().take(span.start).filter(|&b| b == b'\n').count() + 1);
            let line = line.map_or(String::new(), |line| format!(":{line}"));
            let words: Vec<_> = error.message().split_whitespace().collect();
            format!("{place}{line}: {}", in_words(&words.join(" ")))
        };
        let mut settings: Settings = toml::from_str(text).map_err(wrong)?;
        let tenants: Tenants = toml::from_str(text).map_err(wrong)?;
        let checked = || -> Result<Settings, String> {
            let tenants = tenants.tenant.into_iter().map(|tenant| tenant_of(tenant, root));
            settings.tenants = tenants.collect::<Result<_, _>>()?;
            settings.check().map(|()| settings)
        };
        checked().map_err(|what| format!("{place}: {what}"))
    }

    /// What one value alone does not tell.
    fn check(&self) -> Result<(), String> {
        let year = Duration::from_secs(31_536_000);
        let times =
            [("forget", self.forget), ("longest-wait", self.longest_wait), ("idle", self.idle)];
        for (name, time) in times {
            if time < Duration::from_millis(1) || time > year {
                let seconds = time.as_secs_f64();
                let mend = "give seconds, 0.001 to 31536000 (a year)";
                return Err(format!("{name} = {seconds}: {mend}"));
            }
        }
        for (name, rate) in [("rate", self.rate), ("rate-busy", self.rate_busy)] {
            if let Some(rate) = rate.filter(|rate| *rate < Page::Huge.bytes()) {
                let mend = "less than a page; give \"2M\" or more, or leave it out";
                return Err(format!("{name} = {rate}: {mend}"));
            }
        }
        let places = [
            ("connections", self.connections),
            ("connections-per-user", self.connections_per_user),
        ];
        if let Some((name, _)) = places.iter().find(|(_, most)| *most == 0) {
            let mend = "nobody could connect; give 1 or more, or leave it out";
            return Err(format!("{name} = 0: {mend}"));
        }
        match (self.cpu_busy, self.rate_busy) {
            (Some(_), Some(_)) => {
                let mend = "give one of both";
                return Err(format!("cpu-busy and rate-busy say the same of a busy host; {mend}"));
            }
            (Some(percent @ 101..), _) => {
                return Err(format!("cpu-busy = {percent}: give percent of the CPUs, 0 to 100"));
            }
            _ => {}
        }
        if let Some(metrics) = &self.metrics {
            let local = metrics.parse::<SocketAddr>().is_ok_and(|at| at.ip().is_loopback());
            if !local && !metrics.starts_with('/') {
                let mend = "give an absolute path or a loopback address, \"127.0.0.1:9464\"";
                return Err(format!("metrics = {metrics:?}: {mend}"));
            }
        }
        if let Some(socket) = self.socket.as_ref().filter(|socket| !socket.is_absolute()) {
            return Err(format!("socket = {socket:?}: give an absolute path"));
        }
        let mut names = BTreeSet::new();
        if let Some(Tenant { name, .. }) = self.tenants.iter().find(|one| !names.insert(&one.name))
        {
            return Err(format!("tenant {name}: named twice; put its users into one [[tenant]]"));
        }
        let mut of_stock = self.stock.iter().filter_map(|stocked| stocked.tenant.as_ref());
        match of_stock.find(|name| !names.contains(name)) {
            Some(name) => Err(format!("stock: tenant = {name:?}: no [[tenant]] has that name")),
            None => Ok(()),
        }
    }
}

/// What the parser says, in the words of the file: it knows the types of our program only.
fn in_words(message: &str) -> String {
    let words = [
        (
            "invalid type: map, expected a sequence",
            "give double brackets, [[...]]: there may be several",
        ),
        ("expected usize", "expected a number from 0 up"),
        ("expected u64", "expected a number from 0 up"),
        ("expected u32", "expected a number from 0 up"),
        ("expected u16", "expected a number from 0 up"),
        ("expected f64", "expected seconds, a number"),
        ("wanted string or table", "expected a word in quotes"),
        ("invalid boolean, expected `false`", "not a number; give words in quotes"),
        ("invalid boolean, expected `true`", "not a number; give words in quotes"),
        ("expected a string", "expected words in quotes"),
    ];
    words.iter().fold(message.to_owned(), |text, (theirs, ours)| text.replace(theirs, ours))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenant::Rank;

    fn parse(text: &str) -> Result<Settings, String> {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("etc")).unwrap();
        std::fs::write(root.path().join("etc/passwd"), "root:x:0:0::/:\nqemu:x:107:64:::\n")
            .unwrap();
        std::fs::write(root.path().join("etc/group"), "kvm:x:64:qemu\n").unwrap();
        Settings::parse(text, "f.toml", root.path())
    }

    #[test]
    fn an_empty_file_is_the_standard() {
        assert_eq!(parse("").unwrap(), Settings::default());
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
             [[stock]]\nsize = \"4G\"\nkeep = 2\ntenant = \"vms\"\n\
             [[tenant]]\nname = \"vms\"\nusers = [\"qemu\", 12]\ngroups = [\"kvm\"]\n\
             quota = \"64G\"\nlatency = \"critical\"\ncharge = \"/vms\"\nfiles = [\"/run/vms\"]\n",
        );
        let settings = settings.unwrap();
        assert_eq!((settings.limit, settings.reserve), (Some(8 << 30), 4 << 20));
        assert_eq!(settings.audit, Depth::Full);
        let want = Want { bytes: 4 << 30, page: Page::Huge, node: None };
        let stocked = Stocked { want, tenant: Some("vms".into()), keep: 2, most: u64::MAX };
        assert_eq!(settings.stock, [stocked]);
        let [vms] = &settings.tenants[..] else { panic!("{:?}", settings.tenants) };
        assert_eq!((&vms.uids[..], &vms.gids[..]), (&[107, 12][..], &[64][..]));
        assert_eq!((vms.quota, vms.rank), (Some(64 << 30), Rank::Critical));
        assert_eq!(vms.charge.cgroup.as_deref(), Some("/vms"));
        assert_eq!(vms.charge.files, [Path::new("/run/vms")]);
    }

    #[test]
    fn what_is_made_beside_others_is_a_part_of_the_cpus_or_a_rate() {
        let busy_limit = |text| parse(text).unwrap().busy_limit();
        assert_eq!(busy_limit(""), BusyLimit::Cpu(5));
        assert_eq!(busy_limit("cpu-busy = 20"), BusyLimit::Cpu(20));
        assert_eq!(busy_limit("rate-busy = \"175M\""), BusyLimit::Rate(175 << 20));
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line_with_place_and_mend() {
        for (text, parts) in [
            ("\nlimits = 1\n", &["f.toml:2: ", "unknown field `limits`"][..]),
            ("limit = \"lots\"", &["f.toml:1: ", "lots", "64K, 1.5G"]),
            ("limit = -1", &["negative"]),
            ("= 3", &["f.toml:1: "]),
            ("rate = \"1M\"", &["rate", "give \"2M\" or more"]),
            ("rate-busy = \"1M\"", &["rate-busy", "give \"2M\" or more"]),
            ("cpu-busy = 101", &["cpu-busy = 101", "0 to 100"]),
            ("cpu-busy = 9\nrate-busy = \"9M\"", &["cpu-busy", "rate-busy", "one of both"]),
            ("forget = 0", &["forget = 0", "give seconds"]),
            ("socket-mode = \"9\"", &["socket-mode", "0666"]),
            ("metrics = \"0.0.0.0:80\"", &["loopback"]),
            ("socket = \"a.sock\"", &["absolute path"]),
            ("connections = 0", &["give 1 or more"]),
            ("connections = -1", &["f.toml:1: ", "`-1`, expected a number from 0 up"]),
            ("audit = full", &["f.toml:1: ", "give words in quotes"]),
            ("socket-mode = 666", &["expected words in quotes"]),
            ("idle = \"5m\"", &["expected seconds"]),
            ("audit = true", &["a word in quotes"]),
            ("[tenant]\nname = \"a\"", &["f.toml:1: ", "[[...]]"]),
            (
                "[[tenant]]\nname = \"a\"\nusers = [-1]",
                &["f.toml:3: ", "a name, \"root\", or a number"],
            ),
            ("[[tenant]]\nname = \"a\\nb\"\nusers = [1]", &["a\\nb", "letters"]),
            ("[[stock]]\nsize = \"3M\"\nkeep = 1", &["size = 3M", "multiple of its page, 2M"]),
            ("[[stock]]\nsize = \"2M\"\npage = \"4K\"\nkeep = 1", &["give \"2M\" or \"1G\""]),
            ("[[stock]]\nsize = \"2M\"\nkeep = 3\nmost = 2", &["less than keep = 3"]),
            ("[[tenant]]\nname = \"a\"", &["tenant a", "names nobody"]),
            (
                "[[tenant]]\nname = \"a\"\nusers = [1]\n[[tenant]]\nname = \"a\"\nusers = [2]",
                &["tenant a", "named twice", "one [[tenant]]"],
            ),
            ("[[tenant]]\nname = \"a\"\nusers = [\"who\"]", &["\"who\"", "give the number"]),
            (
                "[[tenant]]\nname = \"a\"\nusers = [1]\ncharge = \"/a/../b\"",
                &["charge", "from the root"],
            ),
            (
                "[[tenant]]\nname = \"a\"\nusers = [1]\nfiles = [\"run\"]",
                &["tenant a", "files = \"run\"", "absolute"],
            ),
            (
                "[[stock]]\nsize = \"2M\"\nkeep = 1\ntenant = \"b\"",
                &["tenant = \"b\"", "[[tenant]]"],
            ),
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

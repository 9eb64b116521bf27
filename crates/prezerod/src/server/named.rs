//! Named leases: what the broker grants becomes a file under a name.
//!
//! The name comes first, the answer after it. A client that is gone by then asks again, or another
//! process in its place, and hears of the lease that lies there.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;

use super::Server;
use crate::broker::Out;
use crate::inode::mounted;
use crate::inode::named::{self, Found, LeaseDir};
use crate::protocol::{Answer, Granted, Name, NamedLease, Reason, Since};
use crate::tenant::ClientId;

impl Server {
    /// Names what was granted, and says so.
    pub(super) fn name_lease(
        &mut self,
        client: ClientId,
        tag: u32,
        granted: &Granted,
        inode: &OwnedFd,
        name: &Name,
    ) {
        let files = self.broker.files_of(client);
        let named = LeaseDir::for_page(&files, granted.page).and_then(|place| {
            let tenant = self.broker.tenant_of_lease(granted.lease).unwrap_or_default();
            let file = mounted::file(inode.as_fd()).ok().flatten();
            let watch =
                |file: &OwnedFd| self.watch.tracker.watch(tenant, granted.lease, file.as_fd()).ok();
            let watched = file.as_ref().and_then(watch);
            drop(file);
            match place.attach(inode.as_fd(), name) {
                Ok(()) => Ok(Some((place, watched))),
                // Another request for that name was served first.
                Err(Errno::EXIST) => Ok(None),
                Err(error) => Err(format!("{}: {error}; ask again", place.path(name).display())),
            }
        });
        match named {
            Ok(Some((place, watched))) => {
                if let Some(inode) = watched {
                    self.broker.ends_with_memory(granted.lease, inode.device());
                }
                let Granted { bytes, page, backing, inode, age_ns, waited_ns, .. } = *granted;
                let since = Since::Now;
                let lease = NamedLease { bytes, page, backing, inode, age_ns, waited_ns, since };
                let path = place.path(name).display().to_string();
                self.answer(client, tag, Answer::Named { lease, path });
            }
            Ok(None) => {
                self.broker.undelivered(granted.lease);
                match named::find(&files, name) {
                    Some(found) => self.found(client, tag, &found, name),
                    None => {
                        let dirs: Vec<_> =
                            files.iter().map(|dir| dir.display().to_string()).collect();
                        let (name, dirs) = (name.as_str(), dirs.join(" or "));
                        self.refuse(
                            client,
                            tag,
                            format!("{name} in {dirs} is in use, or no lease; remove it, or give another name"),
                        );
                    }
                }
            }
            Err(text) => {
                self.broker.undelivered(granted.lease);
                self.refuse(client, tag, text);
            }
        }
    }

    /// Says what lies under a name.
    pub(super) fn found(&mut self, client: ClientId, tag: u32, found: &Found, name: &Name) {
        let Found { dir: place, bytes, inode } = found;
        let (page, backing, since) = (place.page, place.backing, Since::Before);
        let (bytes, inode, age_ns, waited_ns) = (*bytes, *inode, 0, 0);
        let lease = NamedLease { bytes, page, backing, inode, age_ns, waited_ns, since };
        let path = place.path(name).display().to_string();
        self.answer(client, tag, Answer::Named { lease, path });
    }

    fn refuse(&mut self, client: ClientId, tag: u32, text: String) {
        let answer = self.broker.refuse(client, None, (Reason::Kernel, text));
        self.answer(client, tag, answer);
    }

    fn answer(&mut self, client: ClientId, tag: u32, answer: Answer) {
        self.deliver(Out::new(client, tag, answer));
    }
}

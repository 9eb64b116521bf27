//! Metrics for Prometheus: one small HTTP answer, on a Unix socket or loopback.
//!
//! Served by a thread of its own, so that no scraper, slow, silent or one of thousands, costs a
//! client anything. The loop is asked for a text a few times a second at most, and all
//! scrapers of that moment get the same one. Where too many are connected the oldest makes way:
//! connections that say nothing keep no other out.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::{SyncSender, sync_channel};

use prezero_sys::peer;

use super::listen;
use super::scrapes::Scrapes;

/// The loop's end.
#[derive(Debug)]
pub struct Http {
    thread: Option<(UnixStream, SyncSender<String>)>,
    path: Option<PathBuf>,
}

impl Http {
    /// Listens on what was inherited, or at `place`, or nowhere.
    pub fn start(inherited: Option<OwnedFd>, place: Option<&str>) -> Result<Http, String> {
        let mut path = None;
        let listener = match (inherited, place) {
            (Some(socket), _) => socket,
            (None, None) => return Ok(Http { thread: None, path }),
            (None, Some(place)) if place.starts_with('/') => {
                path = Some(PathBuf::from(place));
                listen::bind_stream(place.as_ref())?
            }
            (None, Some(place)) => {
                let socket = TcpListener::bind(place);
                socket.map_err(|error| format!("metrics: {place}: {error}; give another"))?.into()
            }
        };
        // One that lingers would hold up the thread as it closed it.
        let _ = peer::refuse_rights(listener.as_fd());
        let started = || -> io::Result<_> {
            rustix::io::ioctl_fionbio(&listener, true)?;
            let (ours, theirs) = UnixStream::pair()?;
            ours.set_nonblocking(true)?;
            theirs.set_nonblocking(true)?;
            // One text is asked for at a time.
            let (texts, answers) = sync_channel(1);
            let scrapes = Scrapes::new(listener, theirs, answers);
            std::thread::Builder::new().name("metrics".into()).spawn(move || scrapes.run())?;
            Ok((ours, texts))
        };
        let thread = started().map_err(|error| format!("metrics: {error}"))?;
        Ok(Http { thread: Some(thread), path })
    }

    /// To be polled: readable when a text is wanted.
    pub fn wanted(&self) -> Option<BorrowedFd<'_>> {
        self.thread.as_ref().map(|(socket, _)| socket.as_fd())
    }

    /// Hands over a text.
    pub fn answer(&mut self, text: String) {
        let Some((socket, texts)) = &self.thread else { return };
        let read = rustix::io::read(socket, &mut [0u8; 1]);
        let gone = matches!(read, Ok(0)) || texts.try_send(text).is_err();
        if gone || rustix::io::write(socket, b"x").is_err() {
            // Without metrics the broker serves on.
            self.thread = None;
        }
    }

    /// No more.
    pub fn close(&mut self) {
        self.thread = None;
        if let Some(path) = self.path.take() {
            let _ = std::fs::remove_file(path);
        }
    }
}

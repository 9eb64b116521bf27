//! The thread that closes inodes: the kernel takes milliseconds to free a GiB, and the loop must not wait.
//!
//! Contract: what is given to it is closed soon, in its order, or with the process. The thread begins with the first one.

use std::cell::OnceCell;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Sender, channel};
use std::thread::Builder;

/// See the module.
#[derive(Debug, Default)]
pub struct Closing {
    /// `None`: there is no thread to be had.
    files: OnceCell<Option<Sender<OwnedFd>>>,
}

impl Closing {
    /// Closes it, here only where there is no thread.
    pub fn close(&self, file: OwnedFd) {
        let files = self.files.get_or_init(|| {
            let (files, given) = channel::<OwnedFd>();
            let close = move || given.into_iter().for_each(drop);
            Builder::new().name("close".into()).spawn(close).ok().map(|_| files)
        });
        if let Some(files) = files {
            // One that it does not take is closed here.
            let _ = files.send(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn what_is_given_to_it_is_closed_by_another_thread() {
        let (closing, mut readers) = (Closing::default(), vec![]);
        for _ in 0..3 {
            let (reader, writer) = std::io::pipe().unwrap();
            closing.close(writer.into());
            readers.push(reader);
        }
        // The end of a pipe is read once its writer is closed.
        readers.iter_mut().for_each(|reader| assert_eq!(reader.read(&mut [0]).unwrap(), 0));
        assert!(matches!(closing.files.get(), Some(Some(_))));
    }
}

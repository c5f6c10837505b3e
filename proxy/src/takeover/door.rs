//! The file a successor comes to: made under a name nobody knows, closed to all but its user, and only
//! then put in its place.
//!
//! Putting it in place replaces the one of the process before. What is no socket is never replaced, nor is
//! the socket of a process that still answers, unless that one handed over.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// See the module. Its file is removed when it is dropped, if it is still its own.
#[derive(Debug)]
pub(crate) struct Door {
    path: PathBuf,
    made: PathBuf,
    file: Option<(u64, u64)>,
}

impl Door {
    /// Makes a door and the listener behind it. Nobody can find it yet.
    ///
    /// # Errors
    /// When something else stands at `path`, or no socket can be made beside it.
    pub(crate) fn make(path: &Path) -> io::Result<(Door, UnixListener)> {
        if fs::symlink_metadata(path).is_ok_and(|there| !there.file_type().is_socket()) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is no socket"));
        }
        let mut made = OsString::from(path);
        made.push(format!(".{}", std::process::id()));
        let made = PathBuf::from(made);
        // Left by a process of the same number that was killed.
        let _ = fs::remove_file(&made);
        let listener = UnixListener::bind(&made)?;
        let file = identity(&made);
        let door = Door { path: path.to_owned(), made, file };
        fs::set_permissions(&door.made, Permissions::from_mode(0o600))?;
        Ok((door, listener))
    }

    /// Whether a process answers at `path`.
    pub(crate) fn is_answered(path: &Path) -> bool {
        UnixStream::connect(path).is_ok()
    }

    /// Puts it in its place.
    ///
    /// # Errors
    /// When the file cannot be renamed.
    pub(crate) fn open(&self) -> io::Result<()> {
        fs::rename(&self.made, &self.path)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        for path in [&self.made, &self.path] {
            // A successor's file stands there by now, if there is one.
            if self.file.is_some() && identity(path) == self.file {
                let _ = fs::remove_file(path);
            }
        }
    }
}

/// What tells a file from another of the same name.
fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> PathBuf {
        let name = format!("shearwater-door-{}-{:x}", std::process::id(), fastrand::u64(..));
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).unwrap();
        folder
    }

    #[test]
    fn it_is_its_users_alone_from_the_moment_it_can_be_found() {
        let folder = folder();
        let path = folder.join("door");
        let (door, _listener) = Door::make(&path).unwrap();
        assert!(!path.exists());
        door.open().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(Door::is_answered(&path));
        drop(door);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "nothing is left behind");
        fs::remove_dir(folder).unwrap();
    }

    #[test]
    fn a_successors_door_outlives_the_one_it_replaced() {
        let folder = folder();
        let path = folder.join("door");
        let (old, old_listener) = Door::make(&path).unwrap();
        old.open().unwrap();
        let (new, _new_listener) = Door::make(&path).unwrap();
        new.open().unwrap();
        drop((old, old_listener));
        assert!(Door::is_answered(&path));
        drop(new);
        fs::remove_dir(folder).unwrap();
    }

    #[test]
    fn what_is_no_socket_is_left_alone() {
        let folder = folder();
        let path = folder.join("precious");
        fs::write(&path, "text").unwrap();
        assert_eq!(Door::make(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "text");
        fs::remove_dir_all(folder).unwrap();
    }
}

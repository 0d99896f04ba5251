//! Running containers as another user: who we are, and letting that user in.
//!
//! The agent's directories are closed to others, because Secrets lie in them.
//! A container of another user must get through to its own: its group is given
//! the right to enter (not to list) what leads there.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use kubelet_core::security::RunAs;

/// The right of others, and of the group, to enter a directory.
const ENTER_OTHER: u32 = 0o001;
const ENTER_GROUP: u32 = 0o010;

/// Returns who the agent runs as.
pub(crate) fn own() -> RunAs {
    RunAs {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
    }
}

/// Looks a user's primary group up in the machine's user database.
pub(crate) fn primary_group(uid: u32) -> Option<u32> {
    group_of(&fs::read_to_string("/etc/passwd").ok()?, uid)
}

fn group_of(passwd: &str, uid: u32) -> Option<u32> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':').skip(2);
        let found: u32 = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        (found == uid).then_some(group)
    })
}

/// Lets a user enter directories that belong to one pod: through its group; if
/// that right is another group's already, through everyone's.
pub(crate) fn let_in<'a>(dirs: impl IntoIterator<Item = &'a Path>, who: RunAs) -> io::Result<()> {
    for dir in dirs {
        let found = fs::metadata(dir)?;
        let mode = found.mode() & 0o7777;
        if may_enter(&found, who) {
            continue;
        }
        let mode = if mode & ENTER_GROUP == 0 {
            chown(dir, None, Some(who.gid))?;
            mode | ENTER_GROUP
        } else {
            mode | ENTER_OTHER
        };
        fs::set_permissions(dir, Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Lets everyone enter directories that all pods share.
pub(crate) fn let_everyone_in<'a>(dirs: impl IntoIterator<Item = &'a Path>) -> io::Result<()> {
    for dir in dirs {
        let mode = fs::metadata(dir)?.mode() & 0o7777;
        if mode & ENTER_OTHER == 0 {
            fs::set_permissions(
                dir,
                Permissions::from_mode(mode | ENTER_GROUP | ENTER_OTHER),
            )?;
        }
    }
    Ok(())
}

/// Gives a directory and those below it to a user; links are left alone.
pub(crate) fn give(dir: &Path, who: RunAs) -> io::Result<()> {
    for item in fs::read_dir(dir)? {
        let item = item?;
        // The type of a link is not that of what it points to.
        if item.file_type()?.is_dir() {
            give(&item.path(), who)?;
        }
    }
    chown(dir, Some(who.uid), Some(who.gid))
}

/// Finds the outermost directory on the way to a path that a user cannot enter.
pub(crate) fn closed_to(path: &Path, who: RunAs) -> Option<PathBuf> {
    let parents: Vec<_> = path.ancestors().skip(1).collect();
    let is_closed = |dir: &&&Path| fs::metadata(dir).is_ok_and(|found| !may_enter(&found, who));
    parents
        .iter()
        .rev()
        .find(is_closed)
        .map(|dir| dir.to_path_buf())
}

/// The kernel asks the first class that applies, and only that.
fn may_enter(found: &fs::Metadata, who: RunAs) -> bool {
    let bit = if who.uid == 0 {
        return true;
    } else if found.uid() == who.uid {
        0o100
    } else if found.gid() == who.gid {
        ENTER_GROUP
    } else {
        ENTER_OTHER
    };
    found.mode() & bit != 0
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn groups_are_found_in_the_user_database() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nbroken\nwww:x:33:34:::\n";
        assert_eq!(group_of(passwd, 33), Some(34));
        assert_eq!(group_of(passwd, 5), None);
    }

    #[test]
    fn closed_directories_are_found_and_opened() {
        let temp = tempfile::tempdir().unwrap();
        let (outer, inner) = (temp.path().join("a"), temp.path().join("a/b"));
        fs::create_dir_all(inner.join("c")).unwrap();
        let mode = |dir: &Path, mode| fs::set_permissions(dir, Permissions::from_mode(mode));
        // Neither our own user nor our own group.
        let own = own();
        let who = RunAs {
            uid: own.uid + 7,
            gid: own.gid + 7,
        };
        mode(temp.path(), 0o711).unwrap();
        mode(&outer, 0o755).unwrap();
        mode(&inner, 0o700).unwrap();
        assert_eq!(closed_to(&inner.join("c"), who), Some(inner.clone()));
        assert_eq!(closed_to(&inner, who), None);
        let_everyone_in([inner.as_path()]).unwrap();
        assert_eq!(closed_to(&inner.join("c"), who), None);
        assert_eq!(fs::metadata(&inner).unwrap().mode() & 0o777, 0o711);
        // The right to enter is another group's already.
        mode(&inner, 0o710).unwrap();
        let_in([inner.as_path()], who).unwrap();
        assert_eq!(closed_to(&inner.join("c"), who), None);
        if own.uid == 0 {
            mode(&inner, 0o700).unwrap();
            let_in([inner.as_path()], who).unwrap();
            let found = fs::metadata(&inner).unwrap();
            assert_eq!((found.mode() & 0o777, found.gid()), (0o710, who.gid));
            give(&outer, who).unwrap();
            assert_eq!(fs::metadata(inner.join("c")).unwrap().uid(), who.uid);
        }
    }
}

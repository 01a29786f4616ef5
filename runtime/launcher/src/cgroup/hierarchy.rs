//! Position of this process in the machine's control groups: version 2, version 1 or both at once.
//!
//! Owns parsing `/proc/self/cgroup` and `/proc/self/mountinfo`. Returns directories of our own group only: nothing
//! above it is ever touched. Sources: cgroups(7); Linux Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/.

use std::path::{Component, Path, PathBuf};

/// Directories of our own group in each hierarchy that a worker's bounds need.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Hierarchies {
    /// Directory in the unified hierarchy (version 2), whether or not it has controllers.
    pub(super) unified: Option<PathBuf>,
    /// Controllers and directories of version 1; co-mounted controllers share a directory.
    pub(super) legacy: Vec<(String, PathBuf)>,
}

impl Hierarchies {
    /// Combines two files of `/proc`: the group's path (`cgroup`) and the mount point of its hierarchy (`mountinfo`).
    pub(super) fn parse(cgroup: &str, mountinfo: &str) -> Hierarchies {
        let mut found = Hierarchies::default();
        for line in cgroup.lines() {
            let mut fields = line.splitn(3, ':');
            let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            let group = Path::new(path);
            if controllers.is_empty() {
                found.unified = mount_of(mountinfo, None, group);
                continue;
            }
            for controller in controllers.split(',') {
                if let Some(dir) = mount_of(mountinfo, Some(controller), group) {
                    found.legacy.push((controller.to_owned(), dir));
                }
            }
        }
        found
    }

    pub(super) fn legacy(&self, controller: &str) -> Option<&Path> {
        self.legacy.iter().find(|(name, _)| name == controller).map(|(_, dir)| dir.as_path())
    }
}

/// Returns the directory of `group` in the hierarchy of `controller` (`None` for the unified one).
///
/// A line of mountinfo is `id parent major:minor root mountpoint options [tags] - type source superoptions`; a mount
/// shows the part of the hierarchy below `root`.
fn mount_of(mountinfo: &str, controller: Option<&str>, group: &Path) -> Option<PathBuf> {
    for line in mountinfo.lines() {
        let Some((mount, filesystem)) = line.split_once(" - ") else { continue };
        let mut mount = mount.split(' ').skip(3);
        let (Some(root), Some(point)) = (mount.next(), mount.next()) else { continue };
        let mut filesystem = filesystem.split(' ');
        let kind = filesystem.next();
        let options = filesystem.nth(1).unwrap_or_default();
        let wanted = match controller {
            None => kind == Some("cgroup2"),
            Some(name) => kind == Some("cgroup") && options.split(',').any(|option| option == name),
        };
        if !wanted {
            continue;
        }
        // A group outside the mounted part (`/..` in a cgroup namespace) is not ours to use.
        let Ok(below) = group.strip_prefix(root) else { continue };
        if below.components().all(|part| matches!(part, Component::Normal(_))) {
            let point = Path::new(point);
            return Some(if below.as_os_str().is_empty() { point.to_path_buf() } else { point.join(below) });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "24 23 0:21 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
                          25 23 0:22 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
                          26 23 0:23 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

    #[test]
    fn a_hybrid_machine_has_both_versions() {
        let found = Hierarchies::parse("4:memory:/a/b\n3:cpu,cpuacct:/\n0::/x\n", HYBRID);
        assert_eq!(found.legacy("memory"), Some(Path::new("/sys/fs/cgroup/memory/a/b")));
        assert_eq!(found.legacy("cpuacct"), Some(Path::new("/sys/fs/cgroup/cpu,cpuacct")));
        assert_eq!(found.legacy("cpu"), found.legacy("cpuacct"));
        assert_eq!(found.unified.as_deref(), Some(Path::new("/sys/fs/cgroup/unified/x")));
    }

    #[test]
    fn a_container_sees_its_group_from_its_own_root() {
        let mountinfo = "30 29 0:26 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup rw,nsdelegate\n";
        let found = Hierarchies::parse("0::/docker/1/app\n", mountinfo);
        assert_eq!(found.unified.as_deref(), Some(Path::new("/sys/fs/cgroup/app")));
    }

    #[test]
    fn a_group_outside_the_mount_is_not_used() {
        let mountinfo = "30 29 0:26 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
        assert_eq!(Hierarchies::parse("0::/docker/2\n", mountinfo).unified, None);
        let namespaced = "30 29 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
        assert_eq!(Hierarchies::parse("0::/../other\n", namespaced).unified, None);
    }

    #[test]
    fn lines_that_mean_nothing_are_passed_over() {
        assert_eq!(Hierarchies::parse("garbage\n::\n:\n\n", "- - -\n\n"), Hierarchies::default());
    }
}

//! A package of npm or PyPI with everything that it needs, installed into a folder at the version that its registry has now, as
//! `asp import` does.
//!
//! Keeps true, as for dependencies: nothing of a package runs while it is installed (no install scripts, no git, no builds from
//! source), and npm and pip reach the registries of the account alone.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use super::{cache, node, python, work};

/// Installs a package of npm (`name`, `name@version`) into `node_modules` of the folder. Dropping the future stops npm.
pub async fn install_npm_package(package: &str, folder: &Path) -> Result<()> {
    let package = package.to_owned();
    install(folder, move |folder, work, stop| node::fetch(&package, folder, work, stop)).await
}

/// Installs a package of PyPI (`name`, `name[extras]==version`) from wheels into `site`. Dropping the future stops pip.
pub async fn install_pypi_package(requirement: &str, site: &Path) -> Result<()> {
    let requirement = requirement.to_owned();
    install(site, move |site, work, stop| python::fetch(&requirement, site, work, stop)).await
}

/// Runs an installation in a work folder of its own, to which no file of a project around `folder` belongs.
async fn install(
    folder: &Path,
    fetch: impl FnOnce(&Path, &Path, &CancellationToken) -> Result<()> + Send + 'static,
) -> Result<()> {
    let folder: PathBuf =
        std::path::absolute(folder).with_context(|| format!("find {}", folder.display()))?;
    let stop = CancellationToken::new();
    let _ends = stop.clone().drop_guard();
    let installing = spawn_blocking(move || {
        let work = work(&cache()?)?;
        fetch(&folder, work.path(), &stop)
    });
    installing.await.context("install a package")?
}

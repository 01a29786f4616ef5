//! Storage for the artifacts of calls and the packages of plugins: files on this machine, or an object store for several
//! machines.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use asp_store::blobs::{Blobs, DiskBlobs};
use asp_store::packages::{DiskPackages, Packages, Quota};

use super::stores::Stores;
use crate::settings::Settings;

/// Directory for artifacts of plugin calls, below the state directory.
const ARTIFACTS: &str = "artifacts";
/// Directory for packages of plugins, below the state directory.
const PACKAGES: &str = "packages";

/// Opens a gateway's artifacts.
pub(super) async fn artifacts(settings: &Settings, stores: &Stores) -> anyhow::Result<Arc<dyn Blobs>> {
    if settings.s3.url.is_some() {
        return shared::artifacts(settings, stores);
    }
    let directory = settings.state_dir.join(ARTIFACTS);
    let artifacts = DiskBlobs::open(&directory).await;
    Ok(Arc::new(artifacts.with_context(|| open_context(&directory))?))
}

/// Opens a control plane's packages.
pub(super) async fn packages(settings: &Settings, stores: &Stores) -> anyhow::Result<Arc<dyn Packages>> {
    if settings.s3.url.is_some() {
        return shared::packages(settings, stores);
    }
    let directory = settings.state_dir.join(PACKAGES);
    let packages = DiskPackages::open(&directory, Quota::default()).await;
    Ok(Arc::new(packages.with_context(|| open_context(&directory))?))
}

fn open_context(directory: &Path) -> String {
    format!("open {}", directory.display())
}

#[cfg(feature = "cluster")]
mod shared {
    use std::path::PathBuf;

    use super::{Arc, Blobs, Context, Packages, Quota, Settings, Stores, open_context};
    use crate::settings::s3::S3Section;
    use asp_platform::secret::Secret;
    use asp_store::postgres::Postgres;
    use asp_store::s3::{Credentials, Links, S3, S3Blobs, S3Packages, check};

    pub(super) fn artifacts(settings: &Settings, stores: &Stores) -> anyhow::Result<Arc<dyn Blobs>> {
        let directory = uploads(settings);
        let blobs = S3Blobs::open(database(stores)?, open(&settings.s3)?, &directory);
        Ok(Arc::new(blobs.with_context(|| open_context(&directory))?))
    }

    pub(super) fn packages(settings: &Settings, stores: &Stores) -> anyhow::Result<Arc<dyn Packages>> {
        let directory = uploads(settings);
        let packages = S3Packages::open(database(stores)?, open(&settings.s3)?, &directory, Quota::default());
        Ok(Arc::new(packages.with_context(|| open_context(&directory))?))
    }

    /// Directory for incomplete uploads, below the state directory: files without a name, which disappear with the process.
    fn uploads(settings: &Settings) -> PathBuf {
        settings.state_dir.join("uploads")
    }

    fn database(stores: &Stores) -> anyhow::Result<&Postgres> {
        stores.postgres().context("ASP_S3_URL needs PostgreSQL")
    }

    fn open(section: &S3Section) -> anyhow::Result<S3> {
        let key = |key: &Option<Secret>| key.clone().context("ASP_S3_URL needs the keys of the store");
        let settings = asp_store::s3::Settings {
            place: check(section.url.as_deref().unwrap_or_default()).context("read ASP_S3_URL")?,
            region: section.region().to_owned(),
            credentials: Credentials {
                access_key: key(&section.access_key)?.expose().to_owned(),
                secret_key: key(&section.secret_key)?,
                session_token: section.session_token.clone(),
            },
            links: section.signed_urls().map(|life| Links { origin: section.public_origin.clone(), life }),
        };
        let s3 = S3::open(&settings).context("open the object store that ASP_S3_URL names")?;
        tokio::spawn(log_fault(s3.clone()));
        Ok(s3)
    }

    /// Logs a fault of the store, so that it is known before the store is needed. The store may be unreachable when a process
    /// starts.
    async fn log_fault(s3: S3) {
        if let Err(fault) = s3.check().await {
            tracing::warn!(
                %fault,
                "the object store that ASP_S3_URL names cannot be used yet: artifacts and packages are refused until it can. \
                 Check that it runs, its bucket, its credentials and their permissions (docs/object-store.md)"
            );
        }
    }
}

#[cfg(not(feature = "cluster"))]
mod shared {
    use super::{Arc, Blobs, Packages, Settings, Stores};

    const OTHER_BUILD: &str = "ASP_S3_URL requires a program that was built with the feature `cluster`";

    pub(super) fn artifacts(_: &Settings, _: &Stores) -> anyhow::Result<Arc<dyn Blobs>> {
        anyhow::bail!(OTHER_BUILD)
    }

    pub(super) fn packages(_: &Settings, _: &Stores) -> anyhow::Result<Arc<dyn Packages>> {
        anyhow::bail!(OTHER_BUILD)
    }
}

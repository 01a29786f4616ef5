//! The build of a deployment: packages in a directory of their own, and the directory's files as they will be applied. Writes
//! nothing into the directory until it is told to.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use asp_command::failure::Failure;
use asp_command::print;
use asp_control::catalog::{self, Bundle};
use asp_packaging::Unit;
use asp_packaging::pack::PackageFile;
use asp_packaging::schemas::PluginSchemas;
use asp_registry::Source;
use serde_json::Value;

use super::super::plugin::packages::{self, BuiltSources};
use super::super::specs;
use super::pin;

/// A unit and its package.
pub(super) struct PackedUnit {
    pub(super) unit: Unit,
    pub(super) package: PackageFile,
}

/// Everything that a deployment sends.
pub(super) struct DeploymentBuild {
    root: PathBuf,
    /// Schema files that differ from the code.
    schemas: Vec<PluginSchemas>,
    /// New texts of specs, by path relative to `root`: with the digests of the packages.
    pinned: BTreeMap<String, String>,
    pub(super) packages: Vec<PackedUnit>,
    /// The servers as they will be applied.
    pub(super) bundles: Vec<Bundle>,
    /// The units of these servers, with their pins.
    pub(super) units: Vec<Unit>,
}

impl DeploymentBuild {
    /// Builds and packs the plugins of the directory `root` into `out`; fails with every fault of its specs.
    pub(super) async fn of(root: &Path, out: &Path) -> Result<DeploymentBuild, Failure> {
        let BuiltSources { files: mut sources, stale: schemas, .. } = packages::build_sources(root).await?;
        replace_schemas(&mut sources, root, &schemas)?;
        let found = specs::without_faults(asp_registry::check(&sources))?;
        let mut packages = Vec::new();
        let mut pinned = BTreeMap::new();
        let versions: Vec<Option<(String, String)>> = sources.iter().map(id_and_version).collect();
        for unit in asp_packaging::units(&found.servers, Some(root)) {
            let Some(package) = packages::pack_unit(&unit, out)? else { continue };
            let runs = |key: &(String, String)| {
                unit.primitives
                    .iter()
                    .any(|primitive| (&primitive.id, &primitive.version) == (&key.0, &key.1))
            };
            for (source, key) in sources.iter_mut().zip(&versions) {
                if !key.as_ref().is_some_and(runs) {
                    continue;
                }
                let text = pin::pinned(&source.text, &package.sha256).with_context(|| {
                    format!(
                        "{}: write `artifactSha256: \"{}\"` into its runtime yourself",
                        source.path, package.sha256
                    )
                })?;
                if text != source.text {
                    pinned.insert(source.path.clone(), text.clone());
                    source.text = text;
                }
            }
            packages.push(PackedUnit { unit, package });
        }
        let report = asp_registry::check(&sources);
        report
            .warnings
            .iter()
            .for_each(|warning| print::note(&format!("warning: {}", catalog::describe(warning))));
        let found = specs::without_faults(report)?;
        let units = asp_packaging::units(&found.servers, Some(root));
        let bundles = catalog::bundles(&sources, found);
        Ok(DeploymentBuild { root: root.to_owned(), schemas, pinned, packages, bundles, units })
    }

    /// Returns the files that [`DeploymentBuild::write`] changes, relative to the directory.
    pub(super) fn changed_files(&self) -> Vec<String> {
        let schemas = self.schemas.iter().map(|schemas| {
            let path = schemas.path.strip_prefix(&self.root).unwrap_or(&schemas.path);
            format!("{}: the schemas of the code", path.display())
        });
        schemas.chain(self.pinned.keys().map(|path| format!("{path}: the digest of its package"))).collect()
    }

    /// Writes schemas and pins into the directory.
    pub(super) fn write(&self) -> Result<(), Failure> {
        for schemas in &self.schemas {
            schemas.write()?;
        }
        for (path, text) in &self.pinned {
            let file = self.root.join(path);
            std::fs::write(&file, text).with_context(|| format!("write {}", file.display()))?;
        }
        Ok(())
    }

    /// Returns `<id>@<version>` of each primitive that runs in a plugin.
    pub(super) fn plugins(&self) -> BTreeSet<String> {
        let primitives = self.units.iter().flat_map(|unit| &unit.primitives);
        primitives.map(|primitive| format!("{}@{}", primitive.id, primitive.version)).collect()
    }
}

/// Replaces the schema files among the sources by the schemas of the code.
fn replace_schemas(sources: &mut Vec<Source>, root: &Path, schemas: &[PluginSchemas]) -> Result<(), Failure> {
    for schemas in schemas {
        let path = schemas.path.strip_prefix(root).ok().and_then(Path::to_str);
        let path =
            path.ok_or_else(|| anyhow!("{} is not below {}", schemas.path.display(), root.display()))?;
        sources.retain(|source| source.path != path);
        let new = schemas.said.as_ref().map(|text| Source { path: path.to_owned(), text: text.clone() });
        sources.extend(new);
    }
    sources.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(())
}

/// Returns id and version of the primitive that a file specifies.
fn id_and_version(source: &Source) -> Option<(String, String)> {
    if source.is_schema_file() {
        return None;
    }
    let spec: Value = serde_saphyr::from_str(&source.text).ok()?;
    let member = |name: &str| Some(spec.get(name)?.as_str()?.to_owned());
    Some((member("id")?, member("version")?))
}

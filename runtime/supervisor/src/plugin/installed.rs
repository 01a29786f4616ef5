//! Finds installed plugins: `<plugins>/<id>/<version>/{plugin.json, package/}`.
//!
//! Keeps true: whatever names a request contains, nothing outside the plugins directory is read or run, and no link in
//! a package leads out of it.

use std::io::Read;
use std::path::{Path, PathBuf};

use asp_proto::supervisor::PluginRef;

use crate::egress::PrivateRoute;
use crate::plugin::manifest::{Language, MAX_BYTES, Manifest, Mode, Variable, is_name};
use crate::refusal::Refusal;
use crate::secrets::is_secret_name;

/// Maximum number of files and directories of one package; node_modules have the most.
const MAX_ENTRIES: usize = 50_000;

/// A plugin that may run.
#[derive(Debug)]
pub struct Plugin {
    pub manifest: Manifest,
    /// The private networks that this pool's calls may reach.
    pub private: Vec<PrivateRoute>,
    /// The version's directory, without links in its path.
    pub directory: PathBuf,
    /// Text of `plugin.json`, to detect a reinstallation.
    text: String,
}

/// Identity of a pool: its workers serve specs of a single credential, or of none, primitives that may reach the same
/// private networks, and users of the same secrets.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PluginKey {
    pub id: String,
    pub version: String,
    /// The operator's name of the credential; empty: none.
    pub credential: String,
    /// Numbers of the operator's routes into private networks that serve the primitive.
    pub routes: Vec<usize>,
    /// Names of the secrets that its workers receive, sorted. The last field, so that the pools of a plugin are
    /// adjacent in the map.
    pub secrets: Vec<String>,
}

impl PluginKey {
    /// Returns the key for a call, given the operator's list of routes.
    pub fn of(wanted: &PluginRef, routes: &[PrivateRoute]) -> PluginKey {
        let PluginRef { id, version, credential, called_as, .. } = wanted;
        let serving = routes.iter().enumerate().filter(|(_, route)| route.serves(called_as));
        PluginKey {
            id: id.clone(),
            version: version.clone(),
            credential: credential.clone(),
            routes: serving.map(|(number, _)| number).collect(),
            secrets: Vec::new(),
        }
    }

    /// Whether the two keys are equal except for their secrets.
    pub fn differs_only_in_secrets(&self, other: &PluginKey) -> bool {
        (&self.id, &self.version, &self.credential, &self.routes)
            == (&other.id, &other.version, &other.credential, &other.routes)
    }

    /// Whether the key is of this plugin version and credential, whatever networks its calls may reach.
    pub fn is_of(&self, wanted: &PluginRef) -> bool {
        self.id == wanted.id && self.version == wanted.version && self.credential == wanted.credential
    }
}

impl std::fmt::Display for PluginKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}", self.id, self.version)?;
        if !self.credential.is_empty() {
            write!(f, "#{}", self.credential)?;
        }
        self.routes.iter().try_for_each(|number| write!(f, "+{number}"))?;
        self.secrets.iter().try_for_each(|name| write!(f, "${name}"))
    }
}

impl Plugin {
    /// Reads and checks the installed plugin that `wanted` names.
    pub fn load(plugins: &Path, wanted: &PluginRef) -> Result<Plugin, Refusal> {
        if !is_name(&wanted.id) || !is_name(&wanted.version) {
            return Err(Refusal::NotInstalled("the request names no plugin and version".into()));
        }
        if !wanted.credential.is_empty() && !is_secret_name(&wanted.credential) {
            return Err(Refusal::NotInstalled("the request names a credential that has no such name".into()));
        }
        let asked = plugins.join(&wanted.id).join(&wanted.version);
        let absent = || Refusal::NotInstalled(format!("{}@{}", wanted.id, wanted.version));
        let directory = asked.canonicalize().map_err(|_| absent())?;
        if directory != asked {
            return Err(Refusal::NotInstalled("a link leads out of the plugins directory".into()));
        }
        let text = read(&directory.join("plugin.json")).map_err(Refusal::NotInstalled)?;
        let manifest = Manifest::parse(&text)
            .map_err(|error| Refusal::NotInstalled(format!("plugin.json is wrong: {error}")))?;
        let plugin = Plugin { manifest, private: Vec::new(), directory, text };
        plugin.check_reference(wanted)?;
        plugin.check_package().map_err(Refusal::NotInstalled)?;
        Ok(plugin)
    }

    /// Whether another plugin was installed in its place (`asp plugin install --replace`).
    pub fn is_replaced(&self) -> bool {
        read(&self.manifest_path()).is_ok_and(|text| text != self.text)
    }

    /// Returns `id@version`, for logs.
    pub fn name(&self) -> String {
        format!("{}@{}", self.manifest.id, self.manifest.version)
    }

    /// Whether any of its primitives asks for a secret.
    pub fn has_secrets(&self) -> bool {
        let manifest = &self.manifest;
        let parts = manifest.primitives.values().any(|primitive| !primitive.secrets.is_empty());
        parts || self.secrets_of("").next().is_some()
    }

    /// Returns the names of the secrets that a primitive of the package asks for, some of them perhaps twice.
    pub fn secrets_of(&self, primitive: &str) -> impl Iterator<Item = &str> {
        let manifest = &self.manifest;
        let own = manifest.primitives.get(primitive).map_or(&manifest.secrets, |part| &part.secrets);
        let variables = manifest.env.values().filter_map(|variable| match variable {
            Variable::Secret(name) => Some(name),
            Variable::Value(_) | Variable::Paths(_) => None,
        });
        own.iter().chain(variables).map(String::as_str)
    }

    pub fn manifest_path(&self) -> PathBuf {
        self.directory.join("plugin.json")
    }

    pub fn package(&self) -> PathBuf {
        self.directory.join("package")
    }

    /// Checks that a request may use this plugin: everything that it specifies in addition to id and version must
    /// match.
    pub fn check_reference(&self, wanted: &PluginRef) -> Result<(), Refusal> {
        let manifest = &self.manifest;
        if manifest.id != wanted.id || manifest.version != wanted.version {
            return Err(Refusal::NotInstalled("plugin.json names another plugin or version".into()));
        }
        if !wanted.artifact_sha256.is_empty()
            && !wanted.artifact_sha256.eq_ignore_ascii_case(&manifest.artifact_sha256)
        {
            return Err(Refusal::DigestMismatch);
        }
        let language = match manifest.mode {
            Mode::McpStdio => "mcp-stdio",
            Mode::Plugin => manifest.language.map_or("", Language::name),
        };
        if !wanted.language.is_empty() && wanted.language != language {
            return Err(Refusal::NotInstalled(format!("the installed plugin's language is {language}")));
        }
        let entrypoint = self.entrypoint_of(&wanted.primitive)?;
        if !wanted.entrypoint.is_empty() && entrypoint.is_some_and(|known| known != wanted.entrypoint) {
            return Err(Refusal::NotInstalled("the installed plugin has another entrypoint".into()));
        }
        Ok(())
    }

    /// Returns the entrypoint of a primitive of the package; `None` if no primitive is named and there are several.
    fn entrypoint_of(&self, primitive: &str) -> Result<Option<&str>, Refusal> {
        let manifest = &self.manifest;
        let is_only = manifest.primitives.is_empty()
            && (manifest.mode == Mode::McpStdio || primitive.is_empty() || primitive == manifest.id);
        if is_only {
            return Ok(Some(&manifest.entrypoint));
        }
        if primitive.is_empty() {
            return Ok(None);
        }
        let known = manifest.primitives.get(primitive).map(|known| Some(known.entrypoint.as_str()));
        known.ok_or_else(|| {
            Refusal::NotInstalled(format!("the installed package has no primitive {primitive}"))
        })
    }

    fn check_package(&self) -> Result<(), String> {
        let package = self.package();
        check_links(&package)?;
        let Some(language) = self.manifest.language.filter(|_| self.manifest.mode == Mode::Plugin) else {
            return Ok(());
        };
        let own = Some(self.manifest.entrypoint.as_str()).filter(|own| !own.is_empty());
        let entrypoints = self.manifest.primitives.values().map(|primitive| primitive.entrypoint.as_str());
        let mut files = own.into_iter().chain(entrypoints).filter_map(|entry| entry_file(language, entry));
        match files.find(|file| !package.join(file).is_file()) {
            Some(file) => Err(format!("the entrypoint {file} is not a file of the package")),
            None => Ok(()),
        }
    }
}

/// Returns the file that an entrypoint names; `None` if it names a class or a module. It may name a handler too:
/// `file.py:function`, `package.module:function`, `file.mjs:export`.
fn entry_file(language: Language, entrypoint: &str) -> Option<&str> {
    let (target, handler) = entrypoint.split_once(':').unwrap_or((entrypoint, ""));
    match language {
        Language::Python => (target.ends_with(".py") || handler.is_empty()).then_some(target),
        Language::Node => Some(target),
        Language::Java => None,
    }
}

fn read(path: &Path) -> Result<String, String> {
    let fault = |error: std::io::Error| format!("read plugin.json: {error}");
    let metadata = path.symlink_metadata().map_err(fault)?;
    if !metadata.is_file() || metadata.len() > MAX_BYTES {
        return Err(format!("plugin.json is not a file of at most {MAX_BYTES} bytes"));
    }
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(fault)?;
    file.take(MAX_BYTES).read_to_string(&mut text).map_err(fault)?;
    Ok(text)
}

/// Refuses a package with a link that leads out of it, or with too many files to check.
fn check_links(package: &Path) -> Result<(), String> {
    let fault = |error: std::io::Error| format!("read the package: {error}");
    if !package.symlink_metadata().map_err(fault)?.is_dir() {
        return Err("package is not a directory".into());
    }
    let mut open = vec![package.to_path_buf()];
    let mut seen = 0_usize;
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).map_err(fault)? {
            let entry = entry.map_err(fault)?;
            seen += 1;
            if seen > MAX_ENTRIES {
                return Err(format!("the package has more than {MAX_ENTRIES} files"));
            }
            let kind = entry.file_type().map_err(fault)?;
            if kind.is_dir() {
                open.push(entry.path());
            } else if kind.is_symlink() {
                let target = entry.path().canonicalize().map_err(fault)?;
                if !target.starts_with(package) {
                    return Err(format!("the link {} leads out of the package", entry.path().display()));
                }
            } else if !kind.is_file() {
                return Err(format!("{} is neither file nor directory", entry.path().display()));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = r#"{"format": 1, "id": "echo", "version": "1.0.0", "kind": "tool", "mode": "plugin",
        "language": "python", "entrypoint": "echo.py",
        "artifactSha256": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}"#;

    fn install(root: &Path) -> PathBuf {
        let version = root.join("echo/1.0.0");
        std::fs::create_dir_all(version.join("package")).unwrap();
        std::fs::write(version.join("plugin.json"), MANIFEST).unwrap();
        std::fs::write(version.join("package/echo.py"), "").unwrap();
        version
    }

    fn reference() -> PluginRef {
        PluginRef { id: "echo".into(), version: "1.0.0".into(), ..PluginRef::default() }
    }

    #[test]
    fn an_installed_plugin_is_found_and_its_pins_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        install(&root);
        let plugin = Plugin::load(&root, &reference()).unwrap();
        assert!(!plugin.is_replaced());
        let changed = MANIFEST.replace("echo.py", "echo.py\", \"riskClass\": \"low");
        std::fs::write(plugin.manifest_path(), changed).unwrap();
        assert!(plugin.is_replaced());
        let pinned = PluginRef { artifact_sha256: "A".repeat(64), ..reference() };
        Plugin::load(&root, &pinned).unwrap();
        let other = PluginRef { artifact_sha256: "b".repeat(64), ..reference() };
        assert_eq!(Plugin::load(&root, &other).unwrap_err(), Refusal::DigestMismatch);
        for wrong in [
            PluginRef { id: "..".into(), ..reference() },
            PluginRef { version: "../1.0.0".into(), ..reference() },
            PluginRef { version: "2.0.0".into(), ..reference() },
            PluginRef { language: "node".into(), ..reference() },
            PluginRef { entrypoint: "other.py".into(), ..reference() },
            PluginRef { primitive: "other".into(), ..reference() },
        ] {
            assert!(matches!(Plugin::load(&root, &wrong), Err(Refusal::NotInstalled(_))), "{wrong:?}");
        }
    }

    #[test]
    fn an_entrypoint_in_python_may_name_a_function_or_a_module() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let version = install(&root);
        let load = |entrypoint: &str| {
            let manifest = MANIFEST.replace("echo.py", entrypoint);
            std::fs::write(version.join("plugin.json"), manifest).unwrap();
            Plugin::load(&root, &reference())
        };
        for found in ["echo.py", "echo.py:run", "samples.echo:run"] {
            load(found).unwrap();
        }
        for missing in ["other.py", "other.py:run", "other"] {
            assert!(
                load(missing).unwrap_err().to_string().contains("is not a file of the package"),
                "{missing}"
            );
        }
    }

    #[test]
    fn a_package_runs_the_primitives_that_it_serves_and_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let version = install(&root);
        let parts = r#""primitives": {"say": {"kind": "tool", "entrypoint": "echo.py:say", "secrets": ["crm-key"]},
            "shout": {"kind": "task", "entrypoint": "loud/shout.py"}}"#;
        let package =
            MANIFEST.replace(r#""kind": "tool", "#, "").replace(r#""entrypoint": "echo.py""#, parts);
        std::fs::write(version.join("plugin.json"), package).unwrap();
        let load = |primitive: &str, entrypoint: &str| {
            let primitive = primitive.to_owned();
            let entrypoint = entrypoint.to_owned();
            Plugin::load(&root, &PluginRef { primitive, entrypoint, ..reference() })
        };
        let missing = load("say", "echo.py:say").unwrap_err().to_string();
        assert!(missing.contains("loud/shout.py is not a file of the package"), "{missing}");
        std::fs::create_dir(version.join("package/loud")).unwrap();
        std::fs::write(version.join("package/loud/shout.py"), "").unwrap();
        let plugin = load("say", "echo.py:say").unwrap();
        let secrets = ["say", "shout", ""].map(|primitive| plugin.secrets_of(primitive).count());
        assert_eq!((plugin.has_secrets(), secrets), (true, [1, 0, 0]), "each primitive has its own");
        load("shout", "loud/shout.py").unwrap();
        load("", "").unwrap();
        let unknown = load("whisper", "echo.py:say").unwrap_err().to_string();
        assert!(unknown.contains("no primitive whisper"), "{unknown}");
        load("say", "loud/shout.py").unwrap_err();
    }

    #[test]
    fn a_link_out_of_the_package_or_the_plugins_directory_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let version = install(&root);
        std::os::unix::fs::symlink("echo.py", version.join("package/inside.py")).unwrap();
        Plugin::load(&root, &reference()).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", version.join("package/data")).unwrap();
        assert!(Plugin::load(&root, &reference()).unwrap_err().to_string().contains("leads out"));

        let outside = tempfile::tempdir().unwrap();
        let elsewhere = install(&outside.path().canonicalize().unwrap());
        std::os::unix::fs::symlink(elsewhere, root.join("echo/2.0.0")).unwrap();
        let linked = PluginRef { version: "2.0.0".into(), ..reference() };
        assert!(Plugin::load(&root, &linked).is_err());
    }
}

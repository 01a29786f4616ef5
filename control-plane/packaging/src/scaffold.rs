//! `asp plugin new`: a server folder with one working primitive as a starting point, or another primitive for a server that
//! exists.
//!
//! Never overwrites an existing file; of an existing server only the list in `server.yaml` grows.

mod package;
mod server_file;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::ValueEnum;

use self::package::ExistingPackage;
use self::server_file::with_reference;
use super::folder::{at, is_maven};

const SERVER: &str = include_str!("../templates/server.yaml");
const TOOL: &str = include_str!("../templates/tool.yaml");
const RESOURCE: &str = include_str!("../templates/resource.yaml");
const PROMPT: &str = include_str!("../templates/prompt.yaml");
const ELICITATION: &str = include_str!("../templates/elicitation.yaml");
const DELEGATE: &str = include_str!("../templates/delegate.yaml");
/// Schema file that `asp plugin build` derives from the code in each language.
const SCHEMAS: &str = include_str!("../templates/schema.json");
const README: &str = include_str!("../templates/README.md");
const GITIGNORE: &str = include_str!("../templates/gitignore");
/// Version of the first primitive.
const VERSION: &str = "0.1.0";
/// Name of the class in the templates of Java.
const CLASS: &str = "Main";
/// Version of the library that a Maven project names: that of `asp`, as they are released together.
const LIBRARY: &str = env!("CARGO_PKG_VERSION");

/// Language of a plugin
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ScaffoldLanguage {
    Python,
    Node,
    Typescript,
    Java,
    /// Java as a project of Maven, with a unit test
    JavaMaven,
}

/// Type of a primitive
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ScaffoldType {
    Tool,
    Task,
    Resource,
    Prompt,
    Elicitation,
    Delegate,
}

/// Primitive to create.
#[derive(Clone, Copy, Debug)]
pub struct NewPrimitive<'a> {
    pub id: &'a str,
    /// Server that gets it; `None`: a new one, named after it.
    pub server: Option<&'a str>,
    pub kind: ScaffoldType,
    /// `None` for types without code.
    pub language: Option<ScaffoldLanguage>,
}

/// Files of one `asp plugin new`.
#[derive(Debug)]
pub struct Scaffold {
    pub made: Vec<PathBuf>,
    /// The `server.yaml` that lists the primitive now, if it existed.
    pub changed: Option<PathBuf>,
}

impl ScaffoldType {
    /// Whether a plugin's code runs it, and a server lists it.
    pub const fn has_code(self) -> bool {
        !matches!(self, ScaffoldType::Elicitation | ScaffoldType::Delegate)
    }

    pub const fn is_tool(self) -> bool {
        matches!(self, ScaffoldType::Tool | ScaffoldType::Task)
    }

    const fn spec(self) -> &'static str {
        match self {
            ScaffoldType::Tool | ScaffoldType::Task => TOOL,
            ScaffoldType::Resource => RESOURCE,
            ScaffoldType::Prompt => PROMPT,
            ScaffoldType::Elicitation => ELICITATION,
            ScaffoldType::Delegate => DELEGATE,
        }
    }
}

impl ScaffoldLanguage {
    /// Returns the language that the spec names.
    const fn word(self) -> &'static str {
        match self {
            ScaffoldLanguage::Python => "python",
            ScaffoldLanguage::Node | ScaffoldLanguage::Typescript => "node",
            ScaffoldLanguage::Java | ScaffoldLanguage::JavaMaven => "java",
        }
    }

    const fn code(self, kind: ScaffoldType) -> &'static str {
        match (self, kind) {
            (ScaffoldLanguage::Python, ScaffoldType::Resource) => {
                include_str!("../templates/python/resource.py")
            }
            (ScaffoldLanguage::Python, ScaffoldType::Prompt) => include_str!("../templates/python/prompt.py"),
            (ScaffoldLanguage::Python, _) => include_str!("../templates/python/main.py"),
            (ScaffoldLanguage::Node | ScaffoldLanguage::Typescript, ScaffoldType::Resource) => {
                include_str!("../templates/node/resource.mjs")
            }
            (ScaffoldLanguage::Node | ScaffoldLanguage::Typescript, ScaffoldType::Prompt) => {
                include_str!("../templates/node/prompt.mjs")
            }
            (ScaffoldLanguage::Node | ScaffoldLanguage::Typescript, _) => {
                include_str!("../templates/node/main.mjs")
            }
            (ScaffoldLanguage::Java | ScaffoldLanguage::JavaMaven, ScaffoldType::Resource) => {
                include_str!("../templates/java/Resource.java")
            }
            (ScaffoldLanguage::Java | ScaffoldLanguage::JavaMaven, ScaffoldType::Prompt) => {
                include_str!("../templates/java/Prompt.java")
            }
            (ScaffoldLanguage::Java | ScaffoldLanguage::JavaMaven, _) => {
                include_str!("../templates/java/Main.java")
            }
        }
    }

    /// Returns the path of a unit test below the code's folder, and its text; `None` in Java without Maven, which would run it.
    fn test(self, module: &str) -> Option<(String, &'static str)> {
        match self {
            ScaffoldLanguage::Python => {
                Some((format!("tests/test_{module}.py"), include_str!("../templates/python/test.txt")))
            }
            ScaffoldLanguage::Node => {
                Some((format!("tests/{module}.test.mjs"), include_str!("../templates/node/test.txt")))
            }
            ScaffoldLanguage::Typescript => {
                Some((format!("tests/{module}.test.ts"), include_str!("../templates/node/test.txt")))
            }
            ScaffoldLanguage::JavaMaven => Some((
                format!("src/test/java/{}Test.java", class(module)),
                include_str!("../templates/java/test.txt"),
            )),
            ScaffoldLanguage::Java => None,
        }
    }

    /// Returns the files that describe the code to its language's own tools.
    const fn project(self) -> &'static [(&'static str, &'static str)] {
        match self {
            ScaffoldLanguage::Typescript => &[
                ("package.json", include_str!("../templates/typescript/package.json")),
                ("tsconfig.json", include_str!("../templates/typescript/tsconfig.json")),
            ],
            ScaffoldLanguage::JavaMaven => &[("pom.xml", include_str!("../templates/java/pom.xml"))],
            ScaffoldLanguage::Python | ScaffoldLanguage::Node | ScaffoldLanguage::Java => &[],
        }
    }

    /// Returns the name of the file and its name in the spec for code called `module`, of a Maven project if `in_maven`.
    fn file(self, module: &str, in_maven: bool) -> (String, String) {
        match self {
            ScaffoldLanguage::Python => (format!("{module}.py"), format!("{module}.py")),
            ScaffoldLanguage::Node => (format!("{module}.mjs"), format!("{module}.mjs")),
            ScaffoldLanguage::Typescript => (format!("{module}.ts"), format!("{module}.ts")),
            ScaffoldLanguage::Java | ScaffoldLanguage::JavaMaven => {
                let class = class(module);
                let below = if in_maven { "src/main/java/" } else { "" };
                (format!("{below}{class}.java"), class)
            }
        }
    }
}

/// Writes `<root>/<server>/{server.yaml, <id>.yaml, <id>.schema.json, plugins/<id>/…}`, or adds a primitive to a server that
/// exists; its code then joins the package of the server's first plugin in its language.
pub fn new(root: &Path, wanted: &NewPrimitive<'_>) -> anyhow::Result<Scaffold> {
    let NewPrimitive { id, kind, .. } = *wanted;
    check_name(id, "id", b"_-")?;
    let server = wanted.server.map_or_else(|| id.replace('_', "-"), str::to_owned);
    check_name(&server, "server name", b"-")?;
    let folder = root.join(&server);
    let listing = folder.join("server.yaml");
    let exists = listing.is_file();
    if exists && wanted.server.is_none() {
        bail!("--server {server} adds to the server that is there: {} exists already", listing.display());
    }
    if !exists && !kind.has_code() {
        bail!(
            "name the server that it belongs to: --server NAME, of which {} has a server.yaml",
            root.display()
        );
    }
    let word = wanted.language.map_or("", ScaffoldLanguage::word);
    let joined = if exists { ExistingPackage::find(&folder, word) } else { None };
    let mut values = values_of(wanted, &server, joined.as_ref());
    let code = code_files(wanted, &folder, joined.as_ref(), &mut values)?;
    let mut files = Vec::new();
    if !exists {
        files.push((listing.clone(), filled(SERVER, &values)));
    }
    files.push((folder.join(format!("{id}.yaml")), filled(kind.spec(), &values)));
    if kind.is_tool() {
        files.push((folder.join(asp_registry::schema_file_name(id)), filled(SCHEMAS, &values)));
    }
    files.extend(code);
    if !exists {
        files.push((folder.join("README.md"), filled(README, &values)));
        files.push((folder.join(".gitignore"), GITIGNORE.to_owned()));
    }
    let changed = match exists && kind.has_code() {
        true => Some(extended(&listing, &format!("{server}/{id}"))?),
        false => None,
    };
    write(root, &files)?;
    let changed = match changed {
        Some(text) => {
            fs::write(&listing, text).with_context(at(&listing))?;
            Some(listing)
        }
        None => None,
    };
    Ok(Scaffold { made: files.into_iter().map(|(path, _)| path).collect(), changed })
}

/// Returns the values of the templates, but those for the entrypoint.
fn values_of(
    wanted: &NewPrimitive<'_>,
    server: &str,
    joined: Option<&ExistingPackage>,
) -> Vec<(&'static str, String)> {
    let kind = wanted.kind.to_possible_value();
    let choice = wanted.language.and_then(|language| language.to_possible_value());
    let package = joined.map(|joined| format!("package: {}, ", joined.package));
    vec![
        ("server", server.to_owned()),
        ("id", wanted.id.to_owned()),
        ("title", title(wanted.id)),
        ("type", kind.as_ref().map_or("", |value| value.get_name()).to_owned()),
        ("language", wanted.language.map_or("", ScaffoldLanguage::word).to_owned()),
        ("choice", choice.as_ref().map_or("", |value| value.get_name()).to_owned()),
        ("version", joined.map_or(VERSION, |joined| joined.version.as_str()).to_owned()),
        ("package", package.unwrap_or_default()),
        ("library", LIBRARY.to_owned()),
    ]
}

/// Returns the text of an existing `server.yaml` that lists the reference as well.
fn extended(listing: &Path, reference: &str) -> anyhow::Result<String> {
    let text = fs::read_to_string(listing).with_context(at(listing))?;
    with_reference(&text, reference).with_context(|| {
        format!(
            "add `- ref: {reference}` to the primitives of {}: its list is not recognized",
            listing.display()
        )
    })
}

/// Returns the code of a primitive and its unit test, and adds the values for the entrypoint.
fn code_files(
    wanted: &NewPrimitive<'_>,
    folder: &Path,
    joined: Option<&ExistingPackage>,
    values: &mut Vec<(&'static str, String)>,
) -> anyhow::Result<Vec<(PathBuf, String)>> {
    if !wanted.kind.has_code() {
        return Ok(Vec::new());
    }
    let language = wanted
        .language
        .context("name the language of the code: --language python, node, typescript, java or java-maven")?;
    let package = folder.join("plugins").join(joined.map_or(wanted.id, ExistingPackage::folder));
    let own = wanted.id.replace('-', "_");
    let module = if joined.is_some() { own.as_str() } else { "main" };
    let in_maven = is_maven(&package) || (language == ScaffoldLanguage::JavaMaven && joined.is_none());
    let (file, entrypoint) = language.file(module, in_maven);
    values.push(("module", module.to_owned()));
    values.push(("file", file.clone()));
    values.push(("entrypoint", entrypoint));
    let code = language.code(wanted.kind);
    let code = match language {
        ScaffoldLanguage::Java | ScaffoldLanguage::JavaMaven => code.replace(CLASS, &class(module)),
        ScaffoldLanguage::Python | ScaffoldLanguage::Node | ScaffoldLanguage::Typescript => code.to_owned(),
    };
    let mut files = vec![(package.join(file), code)];
    // The files of a package that is there are its author's.
    let project = language.project().iter().filter(|_| joined.is_none());
    files.extend(project.map(|(name, text)| (package.join(name), filled(text, values))));
    // Outside of a Maven project, a test of Java would be compiled as code of the plugin.
    let has_test = wanted.kind.is_tool() && (in_maven || language != ScaffoldLanguage::JavaMaven);
    if let Some((path, text)) = language.test(module).filter(|_| has_test) {
        files.push((package.join(path), filled(text, values)));
    }
    Ok(files)
}

/// Creates the files; if one of them exists, none is created.
fn write(root: &Path, files: &[(PathBuf, String)]) -> anyhow::Result<()> {
    if let Some((path, _)) = files.iter().find(|(path, _)| path.exists()) {
        bail!("{} exists already", path.display());
    }
    for (path, text) in files {
        fs::create_dir_all(path.parent().unwrap_or(root)).with_context(at(path))?;
        // create_new: a file that another process creates at the same moment is not overwritten.
        fs::File::create_new(path)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .with_context(at(path))?;
    }
    Ok(())
}

fn filled(template: &str, values: &[(&'static str, String)]) -> String {
    values
        .iter()
        .fold(template.to_owned(), |text, (name, value)| text.replace(&format!("{{{{{name}}}}}"), value))
}

/// Checks a name that becomes a file or folder; `marks` are the characters that it may have beside letters and digits.
fn check_name(name: &str, what: &str, marks: &[u8]) -> anyhow::Result<()> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || marks.contains(&byte);
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    if first && name.len() <= 63 && name.bytes().all(plain) {
        return Ok(());
    }
    let shown: Vec<String> = marks.iter().map(|mark| format!("`{}`", char::from(*mark))).collect();
    bail!(
        "`{name}` is not a valid {what}: use lower-case letters, digits and {}, starting with a letter, at most 63 characters",
        shown.join(", ")
    )
}

/// Turns `greet_all` into `Greet all`.
fn title(id: &str) -> String {
    capital(&id.replace(['_', '-'], " "))
}

/// Turns `greet_all` into `GreetAll`.
fn class(module: &str) -> String {
    module.split('_').map(capital).collect()
}

fn capital(word: &str) -> String {
    let mut characters = word.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

#[cfg(test)]
mod tests;

//! The kinds of package files that the artifact store takes.

/// The kinds of package files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Python: the binary distribution format (PEP 427).
    Wheel,
    /// Node: the output of `npm pack`, a gzipped tar with everything below `package/`.
    Npm,
    /// Java: a jar with its dependencies below `META-INF/lib/`.
    Jar,
    /// A stdio MCP server: a zip with a `manifest.json` (MCP bundle).
    Bundle,
}

impl Format {
    /// Returns the format of a file by the end of its name.
    pub fn of_name(name: &str) -> Option<Format> {
        let (_, end) = name.rsplit_once('.')?;
        match end {
            "whl" => Some(Format::Wheel),
            "tgz" => Some(Format::Npm),
            "jar" => Some(Format::Jar),
            "mcpb" => Some(Format::Bundle),
            _ => None,
        }
    }
}

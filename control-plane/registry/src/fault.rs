//! Faults of primitive and server files.
//!
//! Owns the closed set of fault codes and the format of faults. Refuses free-form codes: programs match on
//! [`FaultCode::as_str`], people read the message and the hint.

use serde::{Serialize, Serializer};

/// Declares the codes, each with its stable name in JSON output.
macro_rules! fault_codes {
    ($($(#[$doc:meta])+ $code:ident = $name:literal,)+) => {
        /// The kind of a fault. The set is closed; a code keeps its meaning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum FaultCode {
            $($(#[$doc])+ $code,)+
        }

        impl FaultCode {
            /// Every code, faults first, then warnings.
            pub const ALL: &'static [FaultCode] = &[$(FaultCode::$code),+];

            /// Returns the stable name in JSON output.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(FaultCode::$code => $name,)+
                }
            }
        }
    };
}

fault_codes! {
    /// The text is not YAML or JSON.
    Syntax = "syntax",
    /// The document is too large, too deep or has too many values.
    DocumentBudget = "document_budget",
    /// An anchor, alias, tag, merge key, directive, second document or non-text key.
    YamlFeature = "yaml_feature",
    /// A plain scalar that YAML versions read differently, or a number JSON cannot hold exactly.
    AmbiguousScalar = "ambiguous_scalar",
    /// A key that occurs twice in one mapping.
    DuplicateKey = "duplicate_key",
    /// A key that the format does not define.
    UnknownKey = "unknown_key",
    /// A required key is missing.
    MissingKey = "missing_key",
    /// A value of the wrong JSON type.
    WrongType = "wrong_type",
    /// A value outside the closed set or range that the format allows.
    BadValue = "bad_value",
    /// A file outside the folder of a server.
    BadPath = "bad_path",
    /// More items than the platform accepts.
    TooMany = "too_many",
    /// A character that hides or reorders text (zero-width, blank, bidi, tag, control).
    BadText = "bad_text",
    /// A text longer than 64 KiB.
    TextTooLong = "text_too_long",
    /// A primitive id outside `[A-Za-z0-9_.-]{1,128}`.
    BadId = "bad_id",
    /// A version that is not a semantic version.
    BadVersion = "bad_version",
    /// A server name outside `[a-z0-9-]{1,63}` or different from its folder.
    BadServerName = "bad_server_name",
    /// An exposed name outside `[A-Za-z0-9_.-]{1,128}`, or a bad skill id.
    BadExposedName = "bad_exposed_name",
    /// A scope that is not an RFC 6749 scope-token.
    BadScope = "bad_scope",
    /// Two files declare the same primitive or server.
    DuplicateId = "duplicate_id",
    /// Two primitives of a server with the same exposed name.
    DuplicateName = "duplicate_name",
    /// A server lists a primitive that no file declares.
    UnresolvedRef = "unresolved_ref",
    /// A dependency that no file declares, or one of the wrong kind.
    UnresolvedDependency = "unresolved_dependency",
    /// A delegate whose primitive delegates to it again.
    DelegateLoop = "delegate_loop",
    /// A key that has no meaning for this kind, mode or protocol.
    MisplacedKey = "misplaced_key",
    /// An exposure that this kind of primitive cannot have.
    NotExposable = "not_exposable",
    /// A hint in `annotations` that contradicts `mutation`.
    MutationConflict = "mutation_conflict",
    /// A capability that is switched off but needed by another part of the spec.
    CapabilityConflict = "capability_conflict",
    /// Authentication settings that contradict each other.
    AuthConflict = "auth_conflict",
    /// A schema that is not valid JSON Schema 2020-12.
    BadSchema = "bad_schema",
    /// A schema that costs too much to hold or to evaluate.
    SchemaBudget = "schema_budget",
    /// A `$ref` that leaves the schema.
    SchemaRef = "schema_ref",
    /// A `$ref` that leads back to itself at the same place of the instance.
    SchemaLoop = "schema_loop",
    /// A regular expression that is not linear, too large, or not an ECMA-262 pattern.
    SchemaPattern = "schema_pattern",
    /// A tool schema whose root is not `type: object`.
    SchemaRoot = "schema_root",
    /// A schema in the spec that contradicts the one made from the plugin's code.
    SchemaConflict = "schema_conflict",
    /// An `x-mcp-header` against the rules of MCP 2026-07-28.
    BadHeaderAnnotation = "bad_header_annotation",
    /// A default that its own schema rejects.
    BadDefault = "bad_default",
    /// An example that the schema rejects.
    BadExample = "bad_example",
    /// A resource URI that is not absolute or has a forbidden scheme.
    BadUri = "bad_uri",
    /// A template beyond RFC 6570 level 1.
    BadUriTemplate = "bad_uri_template",
    /// A URL that is not http(s), carries credentials or hides its host.
    BadUrl = "bad_url",
    /// A value that is not a host name.
    BadHost = "bad_host",
    /// A value that is not a web origin.
    BadOrigin = "bad_origin",
    /// A name that no gateway pool can have.
    BadPool = "bad_pool",
    /// A proxy mapping that names no argument or is not a JSON pointer.
    BadMapping = "bad_mapping",
    /// A request header that a spec may not set.
    BadHeader = "bad_header",
    /// An entrypoint that is not a registered name or leaves the package.
    BadEntrypoint = "bad_entrypoint",
    /// Specs of one package that cannot share its processes.
    PackageConflict = "package_conflict",
    /// A CPU or memory quantity that cannot be read or is out of range.
    BadQuantity = "bad_quantity",
    /// A rate limit that allows nothing or whose window is too long.
    BadRateLimit = "bad_rate_limit",
    /// A `{{name}}` in a prompt that no argument fills.
    BadPlaceholder = "bad_placeholder",
    /// A question that MCP elicitation cannot ask.
    BadElicitation = "bad_elicitation",
    /// Warning: `nullable: true` was compiled to a union with null.
    NullableRewritten = "nullable_rewritten",
    /// Warning: a primitive without a summary.
    NoSummary = "no_summary",
    /// Warning: a tool without `mutation`; it is treated as destructive.
    NoMutation = "no_mutation",
    /// Warning: more tools in one server than models choose from reliably.
    ManyTools = "many_tools",
    /// Warning: a `format` that is not asserted.
    UnknownFormat = "unknown_format",
    /// Warning: a proxied address that requires an upstream entry by the operator.
    PrivateUpstream = "private_upstream",
    /// Warning: a primitive that no server lists and nothing depends on.
    UnlistedPrimitive = "unlisted_primitive",
    /// Warning: a name that some clients or model providers reject or change.
    UnportableName = "unportable_name",
    /// Warning: two names of a server that differ only in case.
    CaseTwins = "case_twins",
    /// Warning: two resource templates of a server that match the same URIs.
    OverlappingTemplates = "overlapping_templates",
    /// Warning: specs that name one package, but different versions of it.
    PackageVersions = "package_versions",
}

impl FaultCode {
    /// Whether a report whose only codes are like this one still has a catalog.
    pub fn is_warning(self) -> bool {
        self >= FaultCode::NullableRewritten
    }
}

impl Serialize for FaultCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// Maximum length of a text in characters. A validator quotes the rejected value, and a pointer the keys that lead to
/// it.
const MAX_CHARS: usize = 300;

/// Shortens a text of a fault, which may quote a whole file.
pub(crate) fn shortened(text: String) -> String {
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

/// A fault, or advice if [`FaultCode::is_warning`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    pub code: FaultCode,
    /// Path of the file relative to the primitives root.
    pub file: String,
    /// One-based line, 0 if unknown.
    pub line: u32,
    /// JSON pointer (RFC 6901) to the value, "" for the whole file.
    pub path: String,
    /// Description of the problem, with the value.
    pub message: String,
    /// Remedy.
    pub hint: String,
}

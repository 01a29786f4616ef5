//! What can be wrong with a primitive or server file.
//!
//! Owns the closed set of fault codes and the list a check fills. Refuses free-form codes: programs match
//! on [`FaultCode::as_str`], people read the message and the hint.
//! Keeps true: at most [`MAX_FAULTS`] faults a file, so that a hostile file cannot fill the memory.

use serde::{Serialize, Serializer};

/// The kind of a fault. The set is closed; codes are only ever added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FaultCode {
    /// The text is not YAML or JSON.
    Syntax,
    /// The document is too large, too deep or has too many values.
    DocumentBudget,
    /// An anchor, alias, tag, merge key, directive, second document or non-text key.
    YamlFeature,
    /// A plain scalar that YAML versions read differently, or a number JSON cannot hold exactly.
    AmbiguousScalar,
    /// A key stands twice in one mapping.
    DuplicateKey,
    /// A key the format does not know.
    UnknownKey,
    /// A required key is missing.
    MissingKey,
    /// A value of another JSON type than the format wants.
    WrongType,
    /// A value outside the closed set or range the format allows.
    BadValue,
    /// A file where no file may be.
    BadPath,
    /// More items than the platform keeps.
    TooMany,
    /// A character that hides or reorders text (zero-width, blank, bidi, tag, control).
    BadText,
    /// A text longer than 64 KiB.
    TextTooLong,
    /// A primitive id outside `[A-Za-z0-9_.-]{1,128}`.
    BadId,
    /// A version that is not a semantic version.
    BadVersion,
    /// A server name outside `[a-z0-9-]{1,63}` or unlike its folder.
    BadServerName,
    /// An exposed name outside `[A-Za-z0-9_.-]{1,128}`, or a bad skill id.
    BadExposedName,
    /// A scope that is no RFC 6749 scope-token.
    BadScope,
    /// Two files declare the same primitive or server.
    DuplicateId,
    /// Two primitives of a server have the same exposed name.
    DuplicateName,
    /// A server lists a primitive that no file declares.
    UnresolvedRef,
    /// A dependency that no file declares, or of another kind.
    UnresolvedDependency,
    /// A delegate whose primitive delegates to it again.
    DelegateLoop,
    /// A key that means nothing for this kind, mode or protocol.
    MisplacedKey,
    /// An exposure this kind of primitive cannot have.
    NotExposable,
    /// A hint in `annotations` that contradicts `mutation`.
    MutationConflict,
    /// A capability switched off that something else in the spec needs.
    CapabilityConflict,
    /// Authentication settings that contradict each other.
    AuthConflict,
    /// A schema that is not valid JSON Schema 2020-12.
    BadSchema,
    /// A schema that costs too much to hold or to evaluate.
    SchemaBudget,
    /// A `$ref` that leaves the schema.
    SchemaRef,
    /// A `$ref` that leads back to itself at the same place of the instance.
    SchemaLoop,
    /// A regular expression that is not linear, too large, or no ECMA-262 pattern.
    SchemaPattern,
    /// A tool schema whose root is not `type: object`.
    SchemaRoot,
    /// A schema of the spec that the one made from the plugin's code contradicts.
    SchemaConflict,
    /// An `x-mcp-header` against the rules of MCP 2026-07-28.
    BadHeaderAnnotation,
    /// A default its own schema refuses.
    BadDefault,
    /// An example the schema refuses.
    BadExample,
    /// A resource URI that is not absolute or has a refused scheme.
    BadUri,
    /// A template beyond RFC 6570 level 1.
    BadUriTemplate,
    /// A URL that is not http(s), carries credentials or hides its host.
    BadUrl,
    /// A value that is no host name.
    BadHost,
    /// A value that is no web origin.
    BadOrigin,
    /// A name that no gateway pool can have.
    BadPool,
    /// A proxy mapping that names no argument or is no JSON pointer.
    BadMapping,
    /// A request header a spec may not set.
    BadHeader,
    /// An entrypoint that is no registered name or leaves the package.
    BadEntrypoint,
    /// A cpu or memory quantity that cannot be read or is out of range.
    BadQuantity,
    /// A rate limit that allows nothing or whose window is too long.
    BadRateLimit,
    /// A `{{name}}` in a prompt that no argument fills.
    BadPlaceholder,
    /// A question beyond what MCP elicitation can ask.
    BadElicitation,
    /// A scheme that nothing judges, or protocols none of which is served.
    NotServed,
    /// Warning: `nullable: true` was compiled to a union with null.
    NullableRewritten,
    /// Warning: a primitive without a summary.
    NoSummary,
    /// Warning: a tool without `mutation`; it is treated as destructive.
    NoMutation,
    /// Warning: more tools in one server than a model chooses from well.
    ManyTools,
    /// Warning: a `format` that is not asserted.
    UnknownFormat,
    /// Warning: a proxied address that needs an upstream entry of the operator.
    PrivateUpstream,
    /// Warning: a primitive no server lists and nothing depends on.
    UnlistedPrimitive,
    /// Warning: a protocol that is not served yet beside one that is.
    UnservedProtocol,
    /// Warning: a name that some clients or model providers refuse or change.
    UnportableName,
    /// Warning: two names of a server that differ in case only.
    CaseTwins,
    /// Warning: two resource templates of a server that match the same URIs.
    OverlappingTemplates,
}

impl FaultCode {
    /// Every code, faults first, then warnings.
    pub const ALL: &'static [FaultCode] = &[
        FaultCode::Syntax,
        FaultCode::DocumentBudget,
        FaultCode::YamlFeature,
        FaultCode::AmbiguousScalar,
        FaultCode::DuplicateKey,
        FaultCode::UnknownKey,
        FaultCode::MissingKey,
        FaultCode::WrongType,
        FaultCode::BadValue,
        FaultCode::BadPath,
        FaultCode::TooMany,
        FaultCode::BadText,
        FaultCode::TextTooLong,
        FaultCode::BadId,
        FaultCode::BadVersion,
        FaultCode::BadServerName,
        FaultCode::BadExposedName,
        FaultCode::BadScope,
        FaultCode::DuplicateId,
        FaultCode::DuplicateName,
        FaultCode::UnresolvedRef,
        FaultCode::UnresolvedDependency,
        FaultCode::DelegateLoop,
        FaultCode::MisplacedKey,
        FaultCode::NotExposable,
        FaultCode::MutationConflict,
        FaultCode::CapabilityConflict,
        FaultCode::AuthConflict,
        FaultCode::BadSchema,
        FaultCode::SchemaBudget,
        FaultCode::SchemaRef,
        FaultCode::SchemaLoop,
        FaultCode::SchemaPattern,
        FaultCode::SchemaRoot,
        FaultCode::SchemaConflict,
        FaultCode::BadHeaderAnnotation,
        FaultCode::BadDefault,
        FaultCode::BadExample,
        FaultCode::BadUri,
        FaultCode::BadUriTemplate,
        FaultCode::BadUrl,
        FaultCode::BadHost,
        FaultCode::BadOrigin,
        FaultCode::BadPool,
        FaultCode::BadMapping,
        FaultCode::BadHeader,
        FaultCode::BadEntrypoint,
        FaultCode::BadQuantity,
        FaultCode::BadRateLimit,
        FaultCode::BadPlaceholder,
        FaultCode::BadElicitation,
        FaultCode::NotServed,
        FaultCode::NullableRewritten,
        FaultCode::NoSummary,
        FaultCode::NoMutation,
        FaultCode::ManyTools,
        FaultCode::UnknownFormat,
        FaultCode::PrivateUpstream,
        FaultCode::UnlistedPrimitive,
        FaultCode::UnservedProtocol,
        FaultCode::UnportableName,
        FaultCode::CaseTwins,
        FaultCode::OverlappingTemplates,
    ];

    /// The stable name in JSON output.
    #[allow(clippy::too_many_lines, reason = "one line a code")]
    pub fn as_str(self) -> &'static str {
        match self {
            FaultCode::Syntax => "syntax",
            FaultCode::DocumentBudget => "document_budget",
            FaultCode::YamlFeature => "yaml_feature",
            FaultCode::AmbiguousScalar => "ambiguous_scalar",
            FaultCode::DuplicateKey => "duplicate_key",
            FaultCode::UnknownKey => "unknown_key",
            FaultCode::MissingKey => "missing_key",
            FaultCode::WrongType => "wrong_type",
            FaultCode::BadValue => "bad_value",
            FaultCode::BadPath => "bad_path",
            FaultCode::TooMany => "too_many",
            FaultCode::BadText => "bad_text",
            FaultCode::TextTooLong => "text_too_long",
            FaultCode::BadId => "bad_id",
            FaultCode::BadVersion => "bad_version",
            FaultCode::BadServerName => "bad_server_name",
            FaultCode::BadExposedName => "bad_exposed_name",
            FaultCode::BadScope => "bad_scope",
            FaultCode::DuplicateId => "duplicate_id",
            FaultCode::DuplicateName => "duplicate_name",
            FaultCode::UnresolvedRef => "unresolved_ref",
            FaultCode::UnresolvedDependency => "unresolved_dependency",
            FaultCode::DelegateLoop => "delegate_loop",
            FaultCode::MisplacedKey => "misplaced_key",
            FaultCode::NotExposable => "not_exposable",
            FaultCode::MutationConflict => "mutation_conflict",
            FaultCode::CapabilityConflict => "capability_conflict",
            FaultCode::AuthConflict => "auth_conflict",
            FaultCode::BadSchema => "bad_schema",
            FaultCode::SchemaBudget => "schema_budget",
            FaultCode::SchemaRef => "schema_ref",
            FaultCode::SchemaLoop => "schema_loop",
            FaultCode::SchemaPattern => "schema_pattern",
            FaultCode::SchemaRoot => "schema_root",
            FaultCode::SchemaConflict => "schema_conflict",
            FaultCode::BadHeaderAnnotation => "bad_header_annotation",
            FaultCode::BadDefault => "bad_default",
            FaultCode::BadExample => "bad_example",
            FaultCode::BadUri => "bad_uri",
            FaultCode::BadUriTemplate => "bad_uri_template",
            FaultCode::BadUrl => "bad_url",
            FaultCode::BadHost => "bad_host",
            FaultCode::BadOrigin => "bad_origin",
            FaultCode::BadPool => "bad_pool",
            FaultCode::BadMapping => "bad_mapping",
            FaultCode::BadHeader => "bad_header",
            FaultCode::BadEntrypoint => "bad_entrypoint",
            FaultCode::BadQuantity => "bad_quantity",
            FaultCode::BadRateLimit => "bad_rate_limit",
            FaultCode::BadPlaceholder => "bad_placeholder",
            FaultCode::BadElicitation => "bad_elicitation",
            FaultCode::NotServed => "not_served",
            FaultCode::NullableRewritten => "nullable_rewritten",
            FaultCode::NoSummary => "no_summary",
            FaultCode::NoMutation => "no_mutation",
            FaultCode::ManyTools => "many_tools",
            FaultCode::UnknownFormat => "unknown_format",
            FaultCode::PrivateUpstream => "private_upstream",
            FaultCode::UnlistedPrimitive => "unlisted_primitive",
            FaultCode::UnservedProtocol => "unserved_protocol",
            FaultCode::UnportableName => "unportable_name",
            FaultCode::CaseTwins => "case_twins",
            FaultCode::OverlappingTemplates => "overlapping_templates",
        }
    }

    /// Whether a report with this code alone still has a catalog.
    pub fn is_warning(self) -> bool {
        self >= FaultCode::NullableRewritten
    }
}

impl Serialize for FaultCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// A validator quotes the value that it refuses, and a pointer the keys that lead to it.
const MAX_CHARS: usize = 300;

/// Shortens a text of a fault, which may quote a whole file.
pub(crate) fn shortened(text: String) -> String {
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

/// One thing that is wrong, or worth knowing when [`FaultCode::is_warning`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    pub code: FaultCode,
    /// The file's path relative to the primitives root.
    pub file: String,
    /// One-based; 0 when unknown.
    pub line: u32,
    /// JSON pointer (RFC 6901) to the value, "" for the whole file.
    pub path: String,
    /// What is wrong, with the value.
    pub message: String,
    /// What to do about it.
    pub hint: String,
}

//! Faults of primitive and server files.
//!
//! Owns the closed set of fault codes and the format of faults. Refuses free-form codes: programs match on
//! [`FaultCode::as_str`], people read the message and the hint.

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
    /// A key that occurs twice in one mapping.
    DuplicateKey,
    /// A key that the format does not define.
    UnknownKey,
    /// A required key is missing.
    MissingKey,
    /// A value of the wrong JSON type.
    WrongType,
    /// A value outside the closed set or range that the format allows.
    BadValue,
    /// A file outside the folder of a server.
    BadPath,
    /// More items than the platform accepts.
    TooMany,
    /// A character that hides or reorders text (zero-width, blank, bidi, tag, control).
    BadText,
    /// A text longer than 64 KiB.
    TextTooLong,
    /// A primitive id outside `[A-Za-z0-9_.-]{1,128}`.
    BadId,
    /// A version that is not a semantic version.
    BadVersion,
    /// A server name outside `[a-z0-9-]{1,63}` or different from its folder.
    BadServerName,
    /// An exposed name outside `[A-Za-z0-9_.-]{1,128}`, or a bad skill id.
    BadExposedName,
    /// A scope that is not an RFC 6749 scope-token.
    BadScope,
    /// Two files declare the same primitive or server.
    DuplicateId,
    /// Two primitives of a server with the same exposed name.
    DuplicateName,
    /// A server lists a primitive that no file declares.
    UnresolvedRef,
    /// A dependency that no file declares, or one of the wrong kind.
    UnresolvedDependency,
    /// A delegate whose primitive delegates to it again.
    DelegateLoop,
    /// A key that has no meaning for this kind, mode or protocol.
    MisplacedKey,
    /// An exposure that this kind of primitive cannot have.
    NotExposable,
    /// A hint in `annotations` that contradicts `mutation`.
    MutationConflict,
    /// A capability that is switched off but needed by another part of the spec.
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
    /// A regular expression that is not linear, too large, or not an ECMA-262 pattern.
    SchemaPattern,
    /// A tool schema whose root is not `type: object`.
    SchemaRoot,
    /// A schema in the spec that contradicts the one made from the plugin's code.
    SchemaConflict,
    /// An `x-mcp-header` against the rules of MCP 2026-07-28.
    BadHeaderAnnotation,
    /// A default that its own schema rejects.
    BadDefault,
    /// An example that the schema rejects.
    BadExample,
    /// A resource URI that is not absolute or has a forbidden scheme.
    BadUri,
    /// A template beyond RFC 6570 level 1.
    BadUriTemplate,
    /// A URL that is not http(s), carries credentials or hides its host.
    BadUrl,
    /// A value that is not a host name.
    BadHost,
    /// A value that is not a web origin.
    BadOrigin,
    /// A name that no gateway pool can have.
    BadPool,
    /// A proxy mapping that names no argument or is not a JSON pointer.
    BadMapping,
    /// A request header that a spec may not set.
    BadHeader,
    /// An entrypoint that is not a registered name or leaves the package.
    BadEntrypoint,
    /// A CPU or memory quantity that cannot be read or is out of range.
    BadQuantity,
    /// A rate limit that allows nothing or whose window is too long.
    BadRateLimit,
    /// A `{{name}}` in a prompt that no argument fills.
    BadPlaceholder,
    /// A question that MCP elicitation cannot ask.
    BadElicitation,
    /// A scheme that nothing evaluates, or a list of protocols none of which is served.
    NotServed,
    /// Warning: `nullable: true` was compiled to a union with null.
    NullableRewritten,
    /// Warning: a primitive without a summary.
    NoSummary,
    /// Warning: a tool without `mutation`; it is treated as destructive.
    NoMutation,
    /// Warning: more tools in one server than models choose from reliably.
    ManyTools,
    /// Warning: a `format` that is not asserted.
    UnknownFormat,
    /// Warning: a proxied address that requires an upstream entry by the operator.
    PrivateUpstream,
    /// Warning: a primitive that no server lists and nothing depends on.
    UnlistedPrimitive,
    /// Warning: a protocol that is not served yet, next to one that is.
    UnservedProtocol,
    /// Warning: a name that some clients or model providers reject or change.
    UnportableName,
    /// Warning: two names of a server that differ only in case.
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

    /// Returns the stable name in JSON output.
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

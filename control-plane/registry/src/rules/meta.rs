//! `_meta`: data for clients in a definition or in contents.
//!
//! Refuses data too large for a list, names reserved for MCP or the platform, and kinds that no list contains.

use serde_json::{Map, Value};

use super::name;
use crate::document::escape;
use crate::fault::FaultCode;
use crate::findings::Findings;
use crate::meta_name::{OWN, is_reserved_meta};
use crate::spec::Spec;

/// Maximum size of `_meta` in bytes, as JSON text.
const MAX_META: usize = 16 << 10;

pub(super) fn check(spec: &Spec, findings: &mut Findings<'_>) {
    if let Some(meta) = &spec.meta {
        if !spec.kind.is_exposable() {
            let message = format!("`_meta` means nothing for a primitive of type {}", spec.kind.word());
            findings.add(FaultCode::MisplacedKey, "/_meta", message, "remove `_meta` or correct `type`");
        }
        check_members(meta, "/_meta", findings);
    }
    for (index, item) in spec.schema.contents.iter().flatten().enumerate() {
        if let Some(meta) = &item.meta {
            check_members(meta, &format!("/primitiveSchema/contents/{index}/_meta"), findings);
        }
    }
}

fn check_members(meta: &Map<String, Value>, path: &str, findings: &mut Findings<'_>) {
    let size = serde_json::to_string(meta).map_or(usize::MAX, |text| text.len());
    if size > MAX_META {
        let message = format!("`_meta` has {size} bytes as JSON");
        findings.add(FaultCode::TextTooLong, path, message, format!("keep it below {MAX_META} bytes"));
    }
    for member in meta.keys().filter(|member| is_reserved_meta(member)) {
        let message = format!("`{}` is a name of MCP or of the platform", name::escape(member));
        let hint =
            format!("begin with a domain of your own, such as `com.example/`, not with MCP's or `{OWN}`");
        findings.add(FaultCode::BadValue, &format!("{path}/{}", escape(member)), message, hint);
    }
}

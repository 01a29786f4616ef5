//! Artifacts: bytes that a call stores for its owner, and the reading of them.
//!
//! Owns: their URIs, `asp-artifact://<id>/<name>`, and their lifetime. Keeps true: an artifact is readable by the
//! principal whose call made it, on the same server; for anybody else it does not exist (I-10).

use std::sync::Arc;
use std::time::Duration;

use asp_call::call::Call;
use asp_call::call::outcome::{Output, Refusal};
use asp_call::call::principal::principal;
use asp_call::clock::{rfc3339, since_epoch};
use asp_call::execution::Execution;
use asp_call::media_type::MediaType;
use asp_snapshot::artifact::SCHEME;
use asp_store::blobs::{BlobError, BlobId, BlobMeta, Blobs, Upload};
use asp_store::link::Link;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// Lifetime of an artifact.
const KEEP: Duration = Duration::from_secs(24 * 3600);
/// Maximum size in bytes of an artifact that is returned in the answer when larger ones are fetched from the store by
/// a signed URL: for a smaller one, a separate request costs more than it saves.
const INLINE: u64 = 64 << 10;
/// Maximum length of a name in bytes.
const MAX_NAME: usize = 255;

/// Artifacts of one gateway.
#[derive(Clone)]
pub struct Artifacts {
    blobs: Arc<dyn Blobs>,
}

/// An artifact that is being received.
pub(super) struct IncomingArtifact {
    id: BlobId,
    upload: Box<dyn Upload>,
}

/// Name and type of a finished artifact.
pub(super) struct ArtifactLabel<'a> {
    pub name: &'a str,
    pub content_type: &'a str,
}

impl Artifacts {
    pub fn new(blobs: Arc<dyn Blobs>) -> Artifacts {
        Artifacts { blobs }
    }

    /// Begins an artifact of a call.
    pub(super) async fn begin(&self, call: &Call) -> Result<IncomingArtifact, BlobError> {
        let id = BlobId::random(rand::random());
        let upload = self.blobs.create(id.clone(), &call.caller.org).await?;
        Ok(IncomingArtifact { id, upload })
    }

    /// Reads the artifact a call names by its `uri` argument.
    pub(super) async fn read(&self, execution: &Execution) -> Result<Output, Refusal> {
        let uri = execution.arguments.get("uri").and_then(Value::as_str).unwrap_or_default();
        let unknown = || Refusal::UnknownResource { uri: uri.to_owned() };
        let id = uri.strip_prefix(SCHEME).and_then(|rest| BlobId::parse(rest.split('/').next()?));
        let id = id.ok_or_else(unknown)?;
        let call = &execution.call;
        let owns = |meta: &BlobMeta| {
            meta.owner == principal(&call.caller)
                && meta.server == call.server.message.name
                && uri == public_uri(&id, &meta.name)
        };
        let org = &call.caller.org;
        if let Some((meta, size, link)) = self.blobs.link(org, &id).await.map_err(unavailable)?
            && size > INLINE
        {
            return if owns(&meta) { Ok(linked(uri, &meta, size, &link)) } else { Err(unknown()) };
        }
        let found = self.blobs.read(org, &id).await;
        let (meta, bytes) = found.map_err(unavailable)?.ok_or_else(unknown)?;
        if !owns(&meta) {
            return Err(unknown());
        }
        let mut content = json!({"uri": uri});
        if let Some(object) = content.as_object_mut() {
            if !meta.content_type.is_empty() {
                object.insert("mimeType".into(), meta.content_type.clone().into());
            }
            match std::str::from_utf8(&bytes) {
                Ok(text) if is_text(&meta.content_type) => object.insert("text".into(), text.into()),
                _ => object.insert("blob".into(), STANDARD.encode(&bytes).into()),
            };
        }
        Ok(Output::contents(vec![content.into()]))
    }

    /// Deletes expired artifacts.
    pub async fn sweep(&self) -> Result<(), BlobError> {
        self.blobs.sweep().await
    }
}

impl IncomingArtifact {
    pub(super) async fn write(&mut self, piece: &[u8]) -> Result<(), BlobError> {
        self.upload.write(piece).await
    }

    /// Makes the artifact readable by the call's owner; returns its URI.
    pub(super) async fn finish(self, call: &Call, named: ArtifactLabel<'_>) -> Result<String, BlobError> {
        let IncomingArtifact { id, upload } = self;
        let expires = since_epoch() + KEEP;
        let meta = BlobMeta {
            org: call.caller.org.clone(),
            owner: principal(&call.caller).to_vec(),
            server: call.server.message.name.clone(),
            name: safe_name(named.name),
            content_type: named.content_type.to_owned(),
            expires_ms: i64::try_from(expires.as_millis()).unwrap_or(i64::MAX),
        };
        let uri = public_uri(&id, &meta.name);
        upload.finish(meta).await?;
        Ok(uri)
    }
}

/// Logs an error of the store, which is unavailable or returned other bytes than were written, and returns the
/// refusal without its text.
fn unavailable(error: BlobError) -> Refusal {
    tracing::warn!(%error, "an artifact could not be read, and its caller was asked to retry; check the artifact store");
    Refusal::Upstream("artifacts cannot be read at the moment: ask again later".into())
}

/// Returns the location of the bytes instead of them: a list of one URL (RFC 2483), which is valid for a limited time
/// for everyone who has it.
fn linked(uri: &str, meta: &BlobMeta, size: u64, link: &Link) -> Output {
    let expires = rfc3339(u64::try_from(link.expires_ms).unwrap_or(0));
    let content = json!({
        "uri": uri,
        "mimeType": "text/uri-list",
        "text": format!("{}\r\n", link.url),
        "_meta": {"asp/mimeType": meta.content_type, "asp/size": size, "asp/expiresAt": expires},
    });
    Output::contents(vec![content.into()])
}

fn public_uri(id: &BlobId, name: &str) -> String {
    format!("{SCHEME}{}/{name}", id.as_str())
}

/// Returns the name with all but the unreserved characters of RFC 3986 replaced; never empty.
fn safe_name(name: &str) -> String {
    let kept = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '~');
    let name: String = name.chars().take(MAX_NAME).map(|c| if kept(c) { c } else { '_' }).collect();
    if name.is_empty() { "artifact".to_owned() } else { name }
}

/// Whether a client reads this content type as text.
fn is_text(content_type: &str) -> bool {
    MediaType::parse(content_type).is_text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_always_a_path_segment() {
        for (name, safe) in [
            ("report.csv", "report.csv"),
            ("../../etc/passwd", ".._.._etc_passwd"),
            ("a b?#", "a_b__"),
            ("", "artifact"),
        ] {
            assert_eq!(safe_name(name), safe);
        }
        assert_eq!(safe_name(&"x".repeat(1000)).len(), MAX_NAME);
    }

    #[test]
    fn text_is_told_by_its_type() {
        for text in ["text/csv", "Text/Plain; charset=utf-8", "application/json", "application/ld+json"] {
            assert!(is_text(text), "{text}");
        }
        for bytes in ["application/pdf", "image/png", ""] {
            assert!(!is_text(bytes), "{bytes}");
        }
    }
}

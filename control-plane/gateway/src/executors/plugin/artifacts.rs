//! Artifacts of one call: pieces of bytes become a blob, and an emission becomes a link in the result.
//!
//! Keeps true: the pieces of an artifact come in order and without gaps, and their size and digest are those
//! the plugin states; what could not be kept is said in the result, and a link to elsewhere is https.

use std::collections::HashMap;

use asp_proto::plugin::{ArtifactData, ArtifactEmitted};
use asp_store::blobs::BlobError;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::memory::EmittedItem;
use crate::call::Call;
use crate::call::event::Event;
use crate::call::outcome::text_block;
use crate::executors::artifacts::{Artifacts, Incoming, Named};

/// Most artifacts of one call, open and emitted.
const MAX_ARTIFACTS: usize = 256;
/// Longest URI and description in bytes.
const MAX_TEXT: usize = 4096;
/// What a plugin calls its own artifacts.
const OWN_SCHEME: &str = "report://";

/// The plugin broke the protocol.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Broken(pub &'static str);

/// What a call has emitted, over all its workers.
#[derive(Default)]
pub(super) struct Emitted {
    items: Vec<Item>,
}

struct Item {
    /// As the plugin calls it.
    own_uri: String,
    /// As the caller reads it.
    uri: String,
    /// As the primitive's artifact schema describes it.
    described: Value,
    /// What the result holds of it.
    block: Value,
}

impl Emitted {
    pub(super) fn kept(&self) -> Vec<EmittedItem> {
        let kept = |item: &Item| EmittedItem {
            own_uri: item.own_uri.clone(),
            uri: item.uri.clone(),
            described: item.described.to_string(),
            block: item.block.to_string(),
        };
        self.items.iter().map(kept).collect()
    }

    /// What was [`Emitted::kept`]; an item that does not read is left out.
    pub(super) fn restored(kept: Vec<EmittedItem>) -> Emitted {
        let item = |kept: EmittedItem| {
            let described = serde_json::from_str(&kept.described).ok()?;
            let block = serde_json::from_str(&kept.block).ok()?;
            Some(Item { own_uri: kept.own_uri, uri: kept.uri, described, block })
        };
        Emitted { items: kept.into_iter().filter_map(item).take(MAX_ARTIFACTS).collect() }
    }

    pub(super) fn clear(&mut self) {
        self.items.clear();
    }

    /// The blocks of the result, in the order of emission.
    pub(super) fn blocks(&self) -> Vec<Value> {
        self.items.iter().map(|item| item.block.clone()).collect()
    }

    /// Public URIs by the plugin's own.
    pub(super) fn uris(&self) -> HashMap<String, String> {
        self.items.iter().map(|item| (item.own_uri.clone(), item.uri.clone())).collect()
    }

    /// The list that the primitive's artifact schema describes.
    pub(super) fn described(&self) -> Value {
        self.items.iter().map(|item| item.described.clone()).collect()
    }

    /// A worker that took over emits again what it does again.
    fn put(&mut self, item: Item) -> Result<(), Broken> {
        let full = self.items.len() >= MAX_ARTIFACTS;
        match self.items.iter_mut().find(|known| known.own_uri == item.own_uri) {
            Some(known) => *known = item,
            None if full => return Err(Broken("too many artifacts")),
            None => self.items.push(item),
        }
        Ok(())
    }
}

/// What one worker is sending.
pub(super) struct Receiving {
    artifacts: Artifacts,
    open: HashMap<String, Open>,
}

struct Open {
    /// `Err` when it can no longer be kept; its pieces are still read.
    incoming: Result<Incoming, BlobError>,
    next: u64,
    hash: Sha256,
}

impl Receiving {
    pub(super) fn new(artifacts: Artifacts) -> Receiving {
        Receiving { artifacts, open: HashMap::new() }
    }

    /// A piece of bytes.
    pub(super) async fn piece(&mut self, call: &Call, piece: ArtifactData) -> Result<(), Broken> {
        if !self.open.contains_key(&piece.uri) {
            if self.open.len() >= MAX_ARTIFACTS || piece.uri.len() > MAX_TEXT {
                return Err(Broken("too many artifacts"));
            }
            let open = Open { incoming: self.artifacts.begin(call).await, next: 0, hash: Sha256::new() };
            self.open.insert(piece.uri.clone(), open);
        }
        let Some(open) = self.open.get_mut(&piece.uri) else { return Ok(()) };
        if piece.offset != open.next {
            return Err(Broken("an artifact with gaps"));
        }
        open.next += piece.data.len() as u64;
        open.hash.update(&piece.data);
        if let Ok(incoming) = &mut open.incoming
            && let Err(error) = incoming.write(&piece.data).await
        {
            open.incoming = Err(error);
        }
        Ok(())
    }

    /// An emission: the end of an artifact's bytes, or a link to elsewhere.
    pub(super) async fn emit(
        &mut self,
        call: &Call,
        emitted: &mut Emitted,
        artifact: ArtifactEmitted,
    ) -> Result<(), Broken> {
        if artifact.uri.len() > MAX_TEXT || artifact.description.len() > MAX_TEXT {
            return Err(Broken("an artifact's description is too long"));
        }
        let open = self.open.remove(&artifact.uri);
        let name = name_of(&artifact.uri).to_owned();
        let kept = match open {
            Some(open) => Some(finish(call, &artifact, &name, open).await?),
            None if artifact.uri.starts_with(OWN_SCHEME) => {
                let incoming = self.artifacts.begin(call).await;
                Some(finish(call, &artifact, &name, Open { incoming, next: 0, hash: Sha256::new() }).await?)
            }
            None if artifact.uri.starts_with("https://") => None,
            None => return Err(Broken("an artifact that is neither sent nor an https link")),
        };
        let uri = match kept {
            None => artifact.uri.clone(),
            Some(Ok(uri)) => uri,
            Some(Err(error)) => {
                tracing::warn!(call = %call.id, error = %error, "artifact was not kept");
                let why = match error {
                    BlobError::TooLarge | BlobError::Quota => error.to_string(),
                    BlobError::Unavailable(_) => "the store is not available".to_owned(),
                };
                let block = text_block(&format!("The artifact {name} was not kept: {why}."));
                let uri = artifact.uri.clone();
                return emitted.put(Item {
                    own_uri: uri.clone(),
                    uri,
                    described: describe(&artifact, &artifact.uri),
                    block,
                });
            }
        };
        call.emit(Event::Artifact {
            uri: uri.clone(),
            content_type: given(&artifact.content_type),
            description: given(&artifact.description),
        });
        let (described, block) = (describe(&artifact, &uri), link(&artifact, &name, &uri));
        emitted.put(Item { own_uri: artifact.uri, uri, described, block })
    }
}

/// Ends an artifact's bytes; the inner error says why it is not kept.
async fn finish(
    call: &Call,
    artifact: &ArtifactEmitted,
    name: &str,
    open: Open,
) -> Result<Result<String, BlobError>, Broken> {
    let digest: String = open.hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    if artifact.size != open.next {
        return Err(Broken("an artifact's size is not what was sent"));
    }
    if !artifact.sha256.is_empty() && artifact.sha256 != digest {
        return Err(Broken("an artifact's digest is not that of its bytes"));
    }
    Ok(match open.incoming {
        Ok(incoming) => incoming.finish(call, Named { name, content_type: &artifact.content_type }).await,
        Err(error) => Err(error),
    })
}

/// `report://<task>/<name>` and `https://host/path/<name>`: what follows the last slash.
fn name_of(uri: &str) -> &str {
    let path = uri.split(['?', '#']).next().unwrap_or_default();
    path.rsplit('/').find(|part| !part.is_empty()).unwrap_or("artifact")
}

fn given(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// As the primitive's artifact schema names the members (seed 1 §1.6.1.1).
fn describe(artifact: &ArtifactEmitted, uri: &str) -> Value {
    let mut described = Map::new();
    for (name, value) in [
        ("type", artifact.r#type.as_str()),
        ("uri", uri),
        ("contentType", artifact.content_type.as_str()),
        ("description", artifact.description.as_str()),
    ] {
        if !value.is_empty() {
            described.insert(name.into(), value.into());
        }
    }
    Value::Object(described)
}

/// An MCP resource link (2025-06-18 and later).
fn link(artifact: &ArtifactEmitted, name: &str, uri: &str) -> Value {
    let mut link = json!({"type": "resource_link", "uri": uri, "name": name});
    if let Some(link) = link.as_object_mut() {
        for (member, value) in [("mimeType", &artifact.content_type), ("description", &artifact.description)]
        {
            if !value.is_empty() {
                link.insert(member.into(), value.clone().into());
            }
        }
        if artifact.size > 0 {
            link.insert("size".into(), artifact.size.into());
        }
    }
    link
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_artifact_is_named_by_the_end_of_its_uri() {
        for (uri, name) in [
            ("report://T1/summary.pdf", "summary.pdf"),
            ("report://T1/a/b.csv", "b.csv"),
            ("https://example.com/x/y.png?sig=1/2#z", "y.png"),
            ("https://example.com/", "example.com"),
            ("", "artifact"),
        ] {
            assert_eq!(name_of(uri), name, "{uri}");
        }
    }
}

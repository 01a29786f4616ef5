//! Primitives that this gateway does not serve as they were accepted: items that their upstream lists otherwise, and plugins that
//! no runtime can run.
//!
//! Takes no part in calls. Keeps true: the primitives are searched for plugins only after a change of the snapshot or of what is
//! offered, because the list is read every few seconds.

use std::collections::BTreeMap;
use std::sync::Arc;

use asp_backends::accepted::DriftedItem;
use asp_backends::plugin::plugin_language;
use asp_call::execution::{Availability, Backends};
use parking_lot::Mutex;

use super::Gateway;

/// A plugin that no runtime can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnavailablePlugin {
    /// `<id>@<version>`.
    pub name: String,
    pub language: String,
    pub reason: String,
}

/// Plugins that no runtime can run, as of one state of the gateway.
#[derive(Default)]
pub(super) struct PluginSurvey(Mutex<Option<SurveyResult>>);

struct SurveyResult {
    /// Revision in force, and number of changes of what is offered.
    state: (u64, u64),
    plugins: Arc<[UnavailablePlugin]>,
}

impl Gateway {
    /// Returns the accepted items that their upstreams list otherwise, by upstream and name, as seen from here.
    pub fn drifted_items(&self) -> Vec<DriftedItem> {
        self.backends.drifted_items()
    }

    /// Returns the plugins that no runtime of this gateway can run, by name.
    pub fn unavailable_plugins(&self) -> Arc<[UnavailablePlugin]> {
        let state = (self.revision(), self.backends.offers_changed());
        let mut known = self.survey.0.lock();
        if let Some(known) = known.as_ref().filter(|known| known.state == state) {
            return Arc::clone(&known.plugins);
        }
        let plugins = self.find_unavailable();
        *known = Some(SurveyResult { state, plugins: Arc::clone(&plugins) });
        plugins
    }

    fn find_unavailable(&self) -> Arc<[UnavailablePlugin]> {
        let Some(snapshot) = self.snapshot() else { return Arc::default() };
        let mut found = BTreeMap::new();
        for primitive in snapshot.primitives() {
            let Some(Availability::Impossible(reason)) = self.pipeline.availability(primitive) else {
                continue;
            };
            let Some(language) = plugin_language(primitive) else { continue };
            let name = format!("{}@{}", primitive.id, primitive.version);
            found.insert(name.clone(), UnavailablePlugin { name, language: language.to_owned(), reason });
        }
        found.into_values().collect()
    }
}

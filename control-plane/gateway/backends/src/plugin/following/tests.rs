//! Tests of the table's bounds and of who is notified, without a plugin.

use super::*;

const USER: [u8; 16] = [1; 16];

/// Listener that records the reported changes; `page://` leads back to the primitive.
#[derive(Default)]
struct ChangeLog(Mutex<Vec<(String, String, String)>>);

impl ResourceListener for ChangeLog {
    fn changed(&self, server: &str, org: &str, uri: &str) {
        self.0.lock().push((server.into(), org.into(), uri.into()));
    }

    fn changed_for_all(&self, _: &str, _: &str) {}

    fn leads_to(&self, server: &str, uri: &str, primitive: &str) -> bool {
        server == "one" && uri.starts_with("page://") && primitive == "page"
    }

    fn offers_changed(&self) {}
}

fn key(org: &str, uri: &str) -> Arc<Key> {
    Arc::new(Key { plugin: PluginRef::default(), org: org.into(), uri: uri.into() })
}

fn followed(listener: &Arc<ChangeLog>, key: Arc<Key>) -> Arc<FollowedResource> {
    let listener: Weak<dyn ResourceListener> =
        Arc::downgrade(&(listener.clone() as Arc<dyn ResourceListener>));
    Arc::new(FollowedResource {
        key,
        server: "demo".into(),
        primitive: "page".into(),
        servers: Mutex::default(),
        listener,
    })
}

#[test]
fn what_leads_back_is_told_where_it_does_and_the_rest_to_nobody() {
    let listener = Arc::new(ChangeLog::default());
    let followed = followed(&listener, key("acme", "page://7"));
    followed.servers.lock().add("one".to_owned(), 1);
    followed.servers.lock().add("two".to_owned(), 2);
    assert_eq!(followed.tell(["page://8".to_owned()]), 0);
    assert_eq!(followed.tell(["other://1".to_owned(), String::new()]), 2);
    assert_eq!(followed.tell(["page://7".to_owned()]), 0);
    let mut told = listener.0.lock().clone();
    told.sort();
    let row = |server: &str, uri: &str| (server.to_owned(), "acme".to_owned(), uri.to_owned());
    assert_eq!(told, [row("one", "page://7"), row("one", "page://8"), row("two", "page://7")]);
}

#[tokio::test]
async fn the_last_who_leaves_ends_a_stream_and_nothing_of_it_is_left() {
    let listener = Arc::new(ChangeLog::default());
    let mut table = Table::default();
    let key = key("acme", "page://7");
    let stream = followed(&listener, key.clone());
    stream.servers.lock().add("one".into(), 2);
    table.by_org.add("acme".into(), 1);
    table.by_user.add(USER, 2);
    let task = AbortOnDropHandle::new(tokio::spawn(std::future::pending()));
    table.streams.insert(key.clone(), (stream, task));
    assert!(table.leave(&key, "one", &USER).is_none(), "somebody else is subscribed");
    let over = table.leave(&key, "one", &USER).expect("nobody is subscribed");
    assert!(table.streams.is_empty() && table.by_org.is_empty() && table.by_user.is_empty());
    over.abort();
}

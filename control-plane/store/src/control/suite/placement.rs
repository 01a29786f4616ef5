//! Routes, regions and homes.

use super::{change, change_if, files};
use crate::control::sql::ControlStore;
use crate::control::{
    AuditQuery, Change, HomeRecord, MAX_HOMES, MAX_ROUTES, Precondition, RegionRecord, RouteRecord,
    StoreError,
};

fn route(server: &str, primitive: &str, pool: &str) -> RouteRecord {
    RouteRecord { server: server.into(), method: "*".into(), primitive: primitive.into(), pool: pool.into() }
}

fn region(name: &str, cluster: &str) -> RegionRecord {
    RegionRecord { name: name.into(), cluster: cluster.into() }
}

pub(super) async fn routes_and_regions_are_replaced_as_lists(store: &ControlStore) {
    let list = [route("*", "z*", "heavy"), route("*", "B", "heavy"), route("*", "a", "risky")];
    let first = store.put_routes(&change(), &list).await.unwrap();
    let in_order = [list[1].clone(), list[2].clone(), list[0].clone()];
    let read = store.routes().await.unwrap();
    assert_eq!((read.revision, read.value.as_slice()), (first.revision, in_order.as_slice()));
    assert!(!store.put_routes(&change(), &in_order).await.unwrap().changed, "their order says nothing");
    let stale = change_if(Precondition::Absent);
    assert!(matches!(store.put_routes(&stale, &[]).await, Err(StoreError::Conflict { .. })));
    store.put_routes(&change(), &list[..1]).await.unwrap();
    let rows = store.audit(&AuditQuery { limit: 1, ..AuditQuery::default() }).await.unwrap();
    assert_eq!((rows[0].action.as_str(), rows[0].resource.as_str()), ("routes.put", "routes"));
    assert!(rows[0].detail.contains("- server=* method=* primitive=a pool=risky"), "{}", rows[0].detail);
    let many: Vec<RouteRecord> = (0..=MAX_ROUTES).map(|n| route("*", &format!("p{n}"), "heavy")).collect();
    assert!(matches!(
        store.put_routes(&change(), &many).await,
        Err(StoreError::Full { bound: MAX_ROUTES, .. })
    ));

    let list = [region("us", "region-us"), region("eu", "")];
    let put = store.put_regions(&change(), &list).await.unwrap();
    let read = store.regions().await.unwrap();
    assert_eq!((read.revision, read.value), (put.revision, vec![list[1].clone(), list[0].clone()]));
    let gone = store.put_regions(&change(), &[]).await.unwrap();
    assert!(gone.changed && store.regions().await.unwrap().value.is_empty());
    assert!(!store.put_regions(&change(), &[]).await.unwrap().changed);
    store.put_regions(&change(), &list).await.unwrap();
}

pub(super) async fn homes_are_kept_by_org(store: &ControlStore) {
    let home = |org: &str, region: &str| HomeRecord { org: org.into(), region: region.into() };
    store.put_home(&change(), &home("acme", "us")).await.unwrap();
    let first = store.put_home(&change(), &home("team-*", "us")).await.unwrap();
    assert!(!store.put_home(&change(), &home("team-*", "us")).await.unwrap().changed);
    let moved = store.put_home(&change(), &home("team-*", "eu")).await.unwrap();
    assert_eq!(moved.revision, first.revision + 1);
    let read = store.home("team-*").await.unwrap().unwrap();
    assert_eq!((read.revision, read.value), (moved.revision, home("team-*", "eu")));
    assert_eq!(store.homes().await.unwrap(), [home("acme", "us"), home("team-*", "eu")]);
    let stale = change_if(Precondition::At(first.revision));
    assert!(matches!(store.delete_home(&stale, "team-*").await, Err(StoreError::Conflict { .. })));
    store.delete_home(&change(), "team-*").await.unwrap();
    assert!(matches!(store.delete_home(&change(), "team-*").await, Err(StoreError::NotFound)));
    assert!(store.home("team-*").await.unwrap().is_none());
    let of = |org: &str| AuditQuery { org: Some(org.into()), limit: 1, ..AuditQuery::default() };
    let rows = store.audit(&of("acme")).await.unwrap();
    assert_eq!((rows[0].action.as_str(), rows[0].detail.as_str()), ("home.put", "us"));
    assert!(store.homes().await.unwrap().len() < MAX_HOMES);
}

pub(super) async fn what_was_evaluated_beside_others_is_refused_when_they_changed(store: &ControlStore) {
    let home = |org: &str| HomeRecord { org: org.into(), region: "us".into() };
    let evaluated = |at| Change { based_on: Some(at), ..change() };
    let is_moved = |written: Result<crate::control::Commit, StoreError>| {
        assert!(matches!(written, Err(StoreError::Stale)), "{written:?}");
    };
    let seen = store.revision().await.unwrap();
    let first = store.put_home(&evaluated(seen), &home("beside-a")).await.unwrap().revision;
    is_moved(store.put_home(&evaluated(seen), &home("beside-b")).await);
    is_moved(store.put_regions(&evaluated(seen), &[region("eu", "beside")]).await);
    assert_eq!(store.revision().await.unwrap(), first, "a refused write leaves no trace");
    let regions = store.put_regions(&evaluated(first), &[region("eu", "beside")]).await.unwrap().revision;
    is_moved(store.put_home(&evaluated(first), &home("beside-b")).await);
    store.put_home(&evaluated(regions), &home("beside-b")).await.unwrap();

    let seen = store.revision().await.unwrap();
    let list = [route("beside", "*", "heavy")];
    let routes = store.put_routes(&evaluated(seen), &list).await.unwrap().revision;
    is_moved(store.put_server(&evaluated(seen), "beside", &files("b"), "b1").await);
    let server = store.put_server(&evaluated(routes), "beside", &files("b"), "b1").await.unwrap();
    is_moved(store.put_routes(&evaluated(routes), &[]).await);
    store.put_routes(&evaluated(server.revision), &list).await.unwrap();

    store.delete_server(&change(), "beside").await.unwrap();
    for org in ["beside-a", "beside-b"] {
        store.delete_home(&change(), org).await.unwrap();
    }
}

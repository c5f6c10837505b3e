//! Several proxies side by side that know nothing of one another: each has a fleet, an index and conversations of its
//! own, and a request comes to any of them. What is lost against one proxy is what sharing state would bring.

use super::product::Product;
use crate::arena::job::Job;
use crate::arena::scene::{Route, Router, Scene};

/// The proxies.
#[derive(Debug)]
pub struct Replicas<'f> {
    proxies: Vec<Product<'f>>,
    /// Which of them got each request.
    owner: Vec<usize>,
}

impl<'f> Replicas<'f> {
    /// These, at least one.
    pub fn new(proxies: Vec<Product<'f>>) -> Self {
        Self { proxies, owner: Vec::new() }
    }

    fn own(&mut self, key: usize, proxy: usize) {
        if self.owner.len() <= key {
            self.owner.resize(key + 1, 0);
        }
        self.owner[key] = proxy;
    }
}

impl Router for Replicas<'_> {
    fn route(&mut self, scene: &mut Scene, key: usize, job: &Job) -> Option<Route> {
        let proxy = scene.random.below(self.proxies.len());
        self.own(key, proxy);
        self.proxies[proxy].route(scene, key, job)
    }

    fn gives_way(&mut self, scene: &Scene, engine: usize) -> Option<usize> {
        self.proxies.iter_mut().find_map(|proxy| proxy.gives_way(scene, engine))
    }

    fn prefilled(&mut self, scene: &Scene, key: usize, job: &Job) {
        self.proxies[self.owner[key]].prefilled(scene, key, job);
    }

    fn finished(&mut self, scene: &Scene, key: usize, job: &Job) {
        self.proxies[self.owner[key]].finished(scene, key, job);
    }

    fn lost(&mut self, scene: &Scene, key: usize, job: &Job) {
        self.proxies[self.owner[key]].lost(scene, key, job);
    }

    fn down(&mut self, scene: &Scene, engine: usize) {
        self.proxies.iter_mut().for_each(|proxy| proxy.down(scene, engine));
    }

    fn up(&mut self, engine: usize) {
        self.proxies.iter_mut().for_each(|proxy| proxy.up(engine));
    }
}

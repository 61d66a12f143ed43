//! The client's side of a cache: workers share its store, and a client need not reach it.

use forebay_runtime::error::{Error, Result};
use forebay_runtime::run::CacheFacts;
use forebay_udfs::hash::hash_bytes;

use crate::cache_request::{CacheAction, CacheReply, CacheRequest};
use crate::call::{Call, call};
use crate::client::Cluster;
use crate::direct::ask_all;
use crate::engine::WorkerId;
use crate::error::{ClusterError, lost};
use crate::lease::LeaseSummary;
use crate::location::absolute_text;
use crate::request::WorkerRequest;

impl Cluster {
    /// Has a worker tell what the choice of a plan depends on of the cache at `dir`.
    ///
    /// # Errors
    /// Fails if `dir` cannot be the location of a cache, or if no worker answers.
    pub async fn cache_facts(&self, dir: &str) -> Result<CacheFacts> {
        match self.ask_cache(dir, CacheAction::Facts).await? {
            (_, LeaseSummary::Cache(CacheReply::Facts(facts))) => Ok(facts),
            (_, LeaseSummary::Failed(failure)) => {
                Err(Error::Config(failure.into_error().to_string()))
            }
            (worker, _) => Err(lost(another(&worker))),
        }
    }

    /// Has the workers open the store at `dir`, and returns its mark.
    ///
    /// # Errors
    /// Fails if the store cannot be opened, or if the workers do not share it.
    pub async fn cache_mark(&self, dir: &str) -> Result<String> {
        // A cluster may still wait for its first worker.
        let (first, answer) = self.ask_cache(dir, CacheAction::Mark).await?;
        let engine = self.leases();
        let workers = engine.workers().await.map_err(lost)?;
        let others = workers.into_iter().filter(|worker| *worker != first);
        let others: Vec<WorkerId> = others.collect();
        let request = cache_request(dir, CacheAction::Mark);
        let mut answers = ask_all(engine, &others, &request).await.map_err(lost)?;
        answers.push((first, answer));
        answers.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut mark: Option<(WorkerId, String)> = None;
        let mut reasons = Vec::new();
        for (worker, answer) in answers {
            match (answer, &mark) {
                (LeaseSummary::Cache(CacheReply::Mark(of)), None) => mark = Some((worker, of)),
                (LeaseSummary::Cache(CacheReply::Mark(of)), Some((first, mark))) => {
                    if of != *mark {
                        let cause = format!("its folder is not that of worker {}", first.0);
                        reasons.push((worker, cause));
                    }
                }
                (LeaseSummary::Failed(failure), _) => {
                    reasons.push((worker, failure.into_error().to_string()));
                }
                _ => return Err(lost(another(&worker))),
            }
        }
        match mark {
            Some((_, mark)) if reasons.is_empty() => Ok(mark),
            Some(_) => {
                let dir = absolute_text(dir);
                let error = ClusterError::CacheNotShared { dir, reasons };
                Err(Error::Config(error.to_string()))
            }
            // The location is at fault. The first reason is as good as the others.
            None => {
                let reason = reasons.into_iter().map(|(_, reason)| reason).next();
                Err(Error::Config(reason.unwrap_or_default()))
            }
        }
    }

    /// Has a worker answer a request about a cache.
    async fn ask_cache(&self, dir: &str, action: CacheAction) -> Result<(WorkerId, LeaseSummary)> {
        let request = Call {
            request: cache_request(dir, action),
            affinity: hash_bytes(dir.as_bytes()),
            what: format!("the cache '{dir}'"),
            avoid: Vec::new(),
        };
        let answered = call(self.leases(), self.settings(), request).await;
        let (output, summary) = answered.map_err(lost)?;
        Ok((output.worker, summary))
    }
}

fn cache_request(dir: &str, action: CacheAction) -> WorkerRequest {
    WorkerRequest::Cache(CacheRequest {
        dir: absolute_text(dir),
        action,
    })
}

fn another(worker: &WorkerId) -> ClusterError {
    ClusterError::Refused {
        cause: format!("worker {} answered another request", worker.0),
    }
}

//! The worker processes of a Python function: a queue of chunks, and one thread per process.
//!
//! All segments in flight put their chunks of rows into one queue, so every process is busy as long
//! as any segment has rows to compute. No thread of this module needs the GIL.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use arrow::array::RecordBatch;

use crate::udf_frame::{Answer, decode_answer, encode};
use crate::udf_worker::{Pipes, Process, Spawn, ending, start};

/// The worker processes of a Python function. The processes live as long as a run needs the
/// function.
#[derive(Debug)]
pub(crate) struct Crew {
    name: String,
    spawn: Spawn,
    queue: Mutex<Queue>,
    changed: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Queue {
    chunks: VecDeque<RowChunk>,
    processes: Vec<(Arc<Process>, bool)>,
    closed: bool,
    /// The reason why no further chunk will be computed; `None` as long as the crew works.
    broken: Option<String>,
}

/// Rows to compute, and the channel for the answer.
#[derive(Debug)]
struct RowChunk {
    index: usize,
    rows: RecordBatch,
    to: Sender<(usize, Result<Answer, String>)>,
    /// True once no caller waits for the chunk's answer. Such a chunk is skipped.
    dropped: Arc<AtomicBool>,
}

/// The reason why a process serves no further chunks. The flag is true if the process was lost,
/// false if the crew was closed. The chunk, if present, must be computed by another process.
struct Lost(bool, Option<RowChunk>);

impl Crew {
    /// Starts `number` processes, which are set up in parallel.
    pub(crate) fn start(name: &str, number: usize, spawn: Spawn) -> Result<Arc<Self>, String> {
        let crew = Arc::new(Self {
            name: name.to_owned(),
            spawn,
            queue: Mutex::default(),
            changed: Condvar::new(),
            threads: Mutex::default(),
        });
        for _ in 0..number {
            let own = Arc::clone(&crew);
            let thread = Builder::new().name("forebay-udf".to_owned());
            let serve = move || {
                // Callers wait for the answers to queued chunks. So a thread that panics must
                // report to the callers that no answers will come.
                if catch_unwind(AssertUnwindSafe(|| own.serve())).is_err() {
                    own.give_up(
                        "a thread that hands rows to its worker processes panicked".to_owned(),
                    );
                }
            };
            #[expect(
                clippy::disallowed_methods,
                reason = "a panic of the thread is caught, and reported to all callers"
            )]
            let started = thread.spawn(serve);
            match started {
                Ok(thread) => lock(&crew.threads).push(thread),
                Err(error) => {
                    crew.close();
                    return Err(format!("cannot start a thread: {error}"));
                }
            }
        }
        Ok(crew)
    }

    /// Computes chunks of rows in parallel. Returns the answers in the order of the chunks.
    pub(crate) fn compute(&self, chunks: Vec<RecordBatch>) -> Result<Vec<Answer>, String> {
        let dropped = Arc::new(AtomicBool::new(false));
        let (to, from) = channel();
        let mut answers: Vec<Option<Answer>> = chunks.iter().map(|_| None).collect();
        {
            let mut queue = lock(&self.queue);
            if let Some(why) = queue.why_not() {
                return Err(why);
            }
            let chunks = chunks.into_iter().enumerate();
            queue.chunks.extend(chunks.map(|(index, rows)| RowChunk {
                index,
                rows,
                to: to.clone(),
                dropped: Arc::clone(&dropped),
            }));
        }
        drop(to);
        self.changed.notify_all();
        for (index, answer) in from {
            match answer {
                Ok(answer) => answers[index] = Some(answer),
                Err(why) => {
                    dropped.store(true, Ordering::Relaxed);
                    return Err(why);
                }
            }
        }
        let answers: Option<Vec<Answer>> = answers.into_iter().collect();
        answers.ok_or_else(|| {
            let why = lock(&self.queue).why_not();
            why.unwrap_or_else(|| "its worker processes ended without an answer".to_owned())
        })
    }

    /// True if no more answers will come, because a process could not be set up or a thread
    /// panicked.
    pub(crate) fn is_broken(&self) -> bool {
        lock(&self.queue).broken.is_some()
    }

    /// Returns the ids of the worker processes.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let queue = lock(&self.queue);
        queue
            .processes
            .iter()
            .map(|(process, _)| process.id)
            .collect()
    }

    /// Ends the processes, and waits until all have ended. Chunks that are not computed yet get no
    /// answer.
    pub(crate) fn close(&self) {
        let processes = {
            let mut queue = lock(&self.queue);
            queue.closed = true;
            queue.chunks.clear();
            queue.processes.clone()
        };
        self.changed.notify_all();
        for (process, _) in processes.iter().filter(|(_, busy)| *busy) {
            process.kill();
        }
        for (process, _) in processes.iter().filter(|(_, busy)| !busy) {
            process.end();
        }
        let threads = std::mem::take(&mut *lock(&self.threads));
        for thread in threads {
            // An error means that the thread panicked. The thread has reported this to the callers
            // already.
            let _ = thread.join();
        }
    }

    /// Passes chunks to a process until the crew is closed. A process that is lost is replaced.
    fn serve(&self) {
        let mut chunk = None;
        loop {
            chunk = match self.employ(chunk) {
                Ok(Lost(true, left)) => left,
                Ok(Lost(false, _)) => return,
                Err(why) => return self.give_up(why),
            };
            // The chunk that the lost process was computing has failed. The process is replaced
            // only if there is another chunk.
            chunk = chunk.or_else(|| self.next(None));
            if chunk.is_none() {
                return;
            }
        }
    }

    /// Starts a process and passes chunks to it, `first` before the chunks of the queue, until the
    /// process ends. Returns the chunk that was lost with the process. Fails if the process cannot
    /// be started.
    fn employ(&self, first: Option<RowChunk>) -> Result<Lost, String> {
        let fail = |first: Option<RowChunk>, why: String| {
            first.map(|chunk| chunk.to.send((chunk.index, Err(why.clone()))));
            Err(why)
        };
        let (process, mut pipes) = match start(&self.spawn) {
            Ok((process, pipes)) => (Arc::new(process), pipes),
            Err(error) => {
                let program = self.spawn.command[0].to_string_lossy();
                let why = format!("cannot start a worker process ({program}): {error}");
                return fail(first, why);
            }
        };
        {
            let mut queue = lock(&self.queue);
            if queue.closed {
                drop(queue);
                process.kill();
                return Ok(Lost(false, None));
            }
            // `true` means busy: the process is still being set up.
            queue.processes.push((Arc::clone(&process), true));
        }
        let ready = pipes.greeted();
        let worked = match ready.and_then(|()| pipes.ask(&self.spawn.payload)) {
            Ok(Ok(_)) => Ok(self.work(&process, &mut pipes, first)),
            Ok(Err(mistake)) => fail(first, mistake),
            Err(_) => fail(first, self.lost(&process)),
        };
        drop(pipes);
        process.end();
        let mut queue = lock(&self.queue);
        queue.processes.retain(|(p, _)| p.id != process.id);
        worked
    }

    /// Lets `process` compute one chunk after the other, `first` before the chunks of the queue,
    /// until the process is lost or the crew is closed.
    fn work(&self, process: &Process, pipes: &mut Pipes, first: Option<RowChunk>) -> Lost {
        let mut given = first;
        loop {
            let chunk = match given.take() {
                Some(chunk) => chunk,
                None => match self.next(Some(process)) {
                    None => return Lost(false, None),
                    // The process ended while idle, so this chunk is not at fault.
                    Some(chunk) if process.has_ended() => return Lost(true, Some(chunk)),
                    Some(chunk) => chunk,
                },
            };
            let answer = match encode(&chunk.rows) {
                Err(error) => Err(error.to_string()),
                Ok(request) => match pipes.ask(&request) {
                    Ok(Ok(bytes)) => decode_answer(&bytes, &self.name).map_err(|e| e.to_string()),
                    Ok(Err(mistake)) => Err(mistake),
                    Err(_) => Err(self.lost(process)),
                },
            };
            let is_lost = answer.is_err();
            // An error is ignored: sending fails if the caller no longer waits for the answer.
            let _ = chunk.to.send((chunk.index, answer));
            if is_lost {
                return Lost(true, None);
            }
        }
    }

    /// Waits for the next chunk that a caller still needs; returns `None` once the crew is closed
    /// or broken.
    fn next(&self, process: Option<&Process>) -> Option<RowChunk> {
        let mut queue = lock(&self.queue);
        queue.mark(process, false);
        loop {
            if queue.why_not().is_some() {
                return None;
            }
            while let Some(chunk) = queue.chunks.pop_front() {
                if !chunk.dropped.load(Ordering::Relaxed) {
                    queue.mark(process, true);
                    return Some(chunk);
                }
            }
            let waited = self.changed.wait(queue);
            queue = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Returns the error message for a process that ended instead of answering.
    fn lost(&self, process: &Process) -> String {
        if lock(&self.queue).closed {
            return ENDED.to_owned();
        }
        format!(
            "its worker process {} {}",
            process.id,
            ending(process.end())
        )
    }

    /// Answers all queued chunks with the error `why`, and stops the crew's work.
    fn give_up(&self, why: String) {
        let mut queue = lock(&self.queue);
        for chunk in queue.chunks.drain(..) {
            let _ = chunk.to.send((chunk.index, Err(why.clone())));
        }
        queue.broken.get_or_insert(why);
        drop(queue);
        self.changed.notify_all();
    }
}

/// The error message of a call of a Python function after the run has ended.
pub(crate) const ENDED: &str = "the run has ended";

impl Queue {
    fn why_not(&self) -> Option<String> {
        if self.closed {
            Some(ENDED.to_owned())
        } else {
            self.broken.clone()
        }
    }

    fn mark(&mut self, process: Option<&Process>, busy: bool) {
        let is_own = |p: &Process| process.is_some_and(|process| process.id == p.id);
        let own = self.processes.iter_mut().find(|(p, _)| is_own(p));
        if let Some((_, state)) = own {
            *state = busy;
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

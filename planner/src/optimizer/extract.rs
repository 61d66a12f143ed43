//! The cheapest plan of a class, with at most one cache point.
//!
//! Row counts and bytes belong to classes, so a node's own cost is the same in every plan, and the
//! best plan of a class is the best node over the best plans of its inputs. With a cache there are
//! two bests of each class: what an epoch costs where nothing below is cached (`each`), and what all
//! epochs cost where one point below is (`cached`). The order and the cache point are thereby chosen
//! together: a cached plan may have another order than the best plan without.
//!
//! Among equal costs the plan is chosen by what it says, never by the order in which the graph was
//! built.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use egg::{Id, Language};

use super::arena::{Arena, ParamId};
use super::cache::CacheCosts;
use super::coefficients::Coefficients;
use super::cost::{Cost, self_cost};
use super::facts::{Fact, PlanFact, fact};
use super::graph::{PlanGraph, param_of, plan_fact};
use super::lang::{Node, Term};
use super::tree::Tree;

/// What a plan costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Priced {
    /// All epochs together.
    pub total: Cost,
    /// The class that is cached, where one is.
    pub cached_at: Option<Id>,
    /// What computing a row of what is cached costs.
    pub cached_row: Cost,
}

/// The cheapest plan of `root` over all epochs, cached at one point if that pays; or right above one of
/// the operators `at`, if that is legal. Of the rows of a class so many are `stored` already; `None` where they must
/// not be cached.
pub fn cheapest(
    graph: &PlanGraph,
    prices: &Coefficients,
    cache: &CacheCosts,
    at: Option<&BTreeSet<ParamId>>,
    stored: &dyn Fn(Id) -> Option<u64>,
    root: Id,
) -> Option<(Tree, Priced)> {
    let root = graph.find(root);
    let best = Best::of(graph, prices, cache, at, stored);
    let mut chooser = Chooser {
        best: &best,
        chosen: HashMap::new(),
        cached: None,
    };
    let each = best.totals.get(&(root, State::Each)).copied()?;
    let each = each.saturating_mul(cache.epochs.into());
    let cached = best.totals.get(&(root, State::Cached)).copied();
    let (state, total) = match cached {
        Some(cached) if cached < each || at.is_some() => (State::Cached, cached),
        _ => (State::Each, each),
    };
    // Sums that saturate are no longer dearer than their parts, and a plan could come to hold itself.
    if total == Cost::MAX {
        return None;
    }
    let tree = chooser.build(root, state)?;
    let (cached_at, cached_row) = chooser.cached.unzip();
    let priced = Priced {
        total,
        cached_at,
        cached_row: cached_row.unwrap_or_default(),
    };
    Some((tree, priced))
}

/// What is known of a node of a term, and what it costs itself in an epoch.
#[derive(Debug, Clone)]
pub struct NodePrice {
    /// The rows, where the node is a plan.
    pub fact: Option<Arc<PlanFact>>,
    /// Its own cost.
    pub own: Cost,
}

/// The cost of one epoch of a term; else why it is no plan.
pub fn price(arena: &mut Arena, prices: &Coefficients, term: &Term) -> Result<Cost, String> {
    let nodes = price_each(arena, prices, term)?;
    let own = nodes.iter().map(|node| node.own);
    Ok(own.fold(0, Cost::saturating_add))
}

/// Each node of a term by itself; else why it is no plan.
pub fn price_each(
    arena: &mut Arena,
    prices: &Coefficients,
    term: &Term,
) -> Result<Vec<NodePrice>, String> {
    let mut priced = Vec::with_capacity(term.len());
    let mut facts: Vec<Fact> = Vec::with_capacity(term.len());
    for node in term.iter() {
        let found = fact(arena, node, |id| facts.get(usize::from(id)))?;
        let mut own = 0;
        if let Fact::Plan(out) = &found {
            let of = |id: Id| match &facts[usize::from(id)] {
                Fact::Plan(plan) => Some(plan.as_ref()),
                _ => None,
            };
            let param = node
                .children()
                .first()
                .and_then(|&id| match facts[usize::from(id)] {
                    Fact::Param(param) => Some(param),
                    _ => None,
                });
            own = self_cost(arena, prices, node, out, param, of);
        }
        let fact = match &found {
            Fact::Plan(plan) => Some(Arc::clone(plan)),
            _ => None,
        };
        priced.push(NodePrice { fact, own });
        facts.push(found);
    }
    Ok(priced)
}

/// Each node of a term of the graph, by what is known of its class.
pub fn price_in(graph: &PlanGraph, prices: &Coefficients, term: &Term) -> Option<Vec<NodePrice>> {
    let ids = graph.lookup_expr_ids(term)?;
    let nodes = term.iter().zip(&ids).map(|(node, &class)| {
        let node = node.clone().map_children(|child| ids[usize::from(child)]);
        NodePrice {
            fact: plan_fact(graph, class).map(Arc::clone),
            own: own(graph, prices, class, &node),
        }
    });
    Some(nodes.collect())
}

/// What a node of the graph itself costs in an epoch.
pub fn own(graph: &PlanGraph, prices: &Coefficients, class: Id, node: &Node) -> Cost {
    let param = match node {
        Node::Param(_) | Node::Keep(_) => return 0,
        Node::Op([param, _, _]) => param_of(graph, *param),
        _ => None,
    };
    let fact = |id: Id| plan_fact(graph, id).map(AsRef::<PlanFact>::as_ref);
    let Some(out) = fact(class) else {
        return Cost::MAX;
    };
    self_cost(&graph.analysis.arena, prices, node, out, param, fact)
}

/// What is asked of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum State {
    /// The least cost of an epoch, nothing cached.
    Each,
    /// The least cost of all epochs, one point cached.
    Cached,
}

/// One way to get what is asked of a class.
#[derive(Debug, Clone, Copy)]
enum Way<'a> {
    /// By a node, of which the input at this place holds the cache.
    Node(&'a Node, Option<usize>),
    /// By caching the class's best plan.
    Cache,
}

/// The least costs of all classes.
struct Best<'a> {
    graph: &'a PlanGraph,
    prices: &'a Coefficients,
    cache: &'a CacheCosts,
    at: Option<&'a BTreeSet<ParamId>>,
    stored: &'a dyn Fn(Id) -> Option<u64>,
    totals: HashMap<(Id, State), Cost>,
}

impl<'a> Best<'a> {
    fn of(
        graph: &'a PlanGraph,
        prices: &'a Coefficients,
        cache: &'a CacheCosts,
        at: Option<&'a BTreeSet<ParamId>>,
        stored: &'a dyn Fn(Id) -> Option<u64>,
    ) -> Self {
        let mut best = Self {
            graph,
            prices,
            cache,
            at,
            stored,
            totals: HashMap::new(),
        };
        let mut nodes = Vec::new();
        for class in graph.classes() {
            for node in &class.nodes {
                nodes.push((class.id, node, own(graph, prices, class.id, node)));
            }
        }
        best.settle(&nodes, State::Each);
        if cache.possible() {
            for class in graph.classes() {
                if let Some(total) = best.total(class.id, Way::Cache, 0) {
                    best.totals.insert((class.id, State::Cached), total);
                }
            }
            best.settle(&nodes, State::Cached);
        }
        best
    }

    /// Lowers the totals of a state until none can be lowered. Every node costs something, so no best
    /// plan holds itself.
    fn settle(&mut self, nodes: &[(Id, &'a Node, Cost)], state: State) {
        let mut changed = true;
        while changed {
            changed = false;
            for &(class, node, own) in nodes {
                for way in Self::by_node(node, state) {
                    let Some(total) = self.total(class, way, own) else {
                        continue;
                    };
                    let known = self.totals.entry((class, state)).or_insert(Cost::MAX);
                    if total < *known {
                        *known = total;
                        changed = true;
                    }
                }
            }
        }
    }

    fn by_node(node: &Node, state: State) -> impl Iterator<Item = Way<'_>> {
        let plain = (state == State::Each).then_some(Way::Node(node, None));
        let places = match state {
            State::Each => 0,
            State::Cached => node.children().len(),
        };
        let held = (0..places).map(move |place| Way::Node(node, Some(place)));
        plain.into_iter().chain(held)
    }

    /// The states that a way asks of a node's inputs.
    fn inputs(&self, node: &Node, cached: Option<usize>) -> Vec<(Id, State)> {
        let inputs = node.children().iter().enumerate();
        let state = |place| match cached == Some(place) {
            true => State::Cached,
            false => State::Each,
        };
        inputs
            .map(|(place, &id)| (self.graph.find(id), state(place)))
            .collect()
    }

    /// Whether the user leaves open where the cache is, or wants it here.
    fn may_be_cached_at(&self, class: Id) -> bool {
        let Some(at) = self.at else { return true };
        self.graph[class].nodes.iter().any(|node| match node {
            Node::Op([param, _, _]) => {
                param_of(self.graph, *param).is_some_and(|param| at.contains(&param))
            }
            _ => false,
        })
    }

    /// The cost of a class in this way, `own` being the node's own cost in an epoch.
    fn total(&self, class: Id, way: Way<'_>, own: Cost) -> Option<Cost> {
        let epochs = Cost::from(self.cache.epochs);
        match way {
            Way::Cache => {
                let fact = plan_fact(self.graph, class)?;
                if !self.may_be_cached_at(class) {
                    return None;
                }
                self.cache.refusal(&self.graph.analysis.arena, fact).ok()?;
                let stored = (self.stored)(class)?;
                let once = self.totals.get(&(class, State::Each))?;
                Some(self.cache.total(*once, fact, stored))
            }
            Way::Node(node, cached) => {
                let own = match cached {
                    Some(_) => own.saturating_mul(epochs),
                    None => own,
                };
                let mut inputs = self.inputs(node, cached).into_iter();
                inputs.try_fold(own, |sum, (id, state)| {
                    let input = *self.totals.get(&(id, state))?;
                    let input = match (cached, state) {
                        (Some(_), State::Each) => input.saturating_mul(epochs),
                        _ => input,
                    };
                    Some(sum.saturating_add(input))
                })
            }
        }
    }
}

struct Chooser<'a> {
    best: &'a Best<'a>,
    /// The chosen way of a class, and what its plan says.
    chosen: HashMap<(Id, State), (Way<'a>, String)>,
    /// The cached class, and what a row of it costs.
    cached: Option<(Id, Cost)>,
}

impl<'a> Chooser<'a> {
    /// Chooses the plan of a class: of the cheapest ways, the one whose plan reads first.
    fn choose(&mut self, class: Id, state: State) -> Option<String> {
        if let Some((_, text)) = self.chosen.get(&(class, state)) {
            return Some(text.clone());
        }
        let best = self.best;
        let least = *best.totals.get(&(class, state))?;
        let mut first: Option<(String, Way<'a>)> = None;
        let cache = (state == State::Cached).then_some((Way::Cache, 0));
        let nodes = best.graph[class].nodes.iter().flat_map(|node| {
            let own = own(best.graph, best.prices, class, node);
            Best::by_node(node, state).map(move |way| (way, own))
        });
        for (way, own) in cache.into_iter().chain(nodes) {
            if best.total(class, way, own) != Some(least) {
                continue;
            }
            let text = self.text(class, way)?;
            if first.as_ref().is_none_or(|(known, _)| text < *known) {
                first = Some((text, way));
            }
        }
        let (text, way) = first?;
        self.chosen.insert((class, state), (way, text.clone()));
        Some(text)
    }

    fn text(&mut self, class: Id, way: Way<'a>) -> Option<String> {
        let (node, cached) = match way {
            Way::Cache => return Some(format!("(cache {})", self.choose(class, State::Each)?)),
            Way::Node(node, cached) => (node, cached),
        };
        let arena = &self.best.graph.analysis.arena;
        let name = match node {
            Node::Param(param) => return Some(arena.spec(*param).text.clone()),
            // What is passed on follows from what stands above.
            Node::Keep(_) => return Some(String::new()),
            Node::Scan(scan) => {
                let spec = arena.scan(*scan);
                return Some(format!("scan {} {:?}", spec.occurrence, spec.columns));
            }
            Node::Op(_) => "op",
            Node::Cat(_) => "cat",
            Node::Zip(_) => "zip",
            Node::Mix(_) => "mix",
        };
        let mut text = format!("({name}");
        for (id, state) in self.best.inputs(node, cached) {
            text += " ";
            text += &self.choose(id, state)?;
        }
        Some(text + ")")
    }

    fn build(&mut self, class: Id, state: State) -> Option<Tree> {
        self.choose(class, state)?;
        let (way, _) = self.chosen.get(&(class, state))?;
        let (node, cached) = match *way {
            Way::Cache => {
                let once = *self.best.totals.get(&(class, State::Each))?;
                let rows = plan_fact(self.best.graph, class)?.rows.number();
                self.cached = Some((class, once / rows.max(1)));
                return Some(Tree::Cache(Box::new(self.build(class, State::Each)?)));
            }
            Way::Node(node, cached) => (node, cached),
        };
        let inputs = self.best.inputs(node, cached);
        match node {
            Node::Param(_) | Node::Keep(_) => None,
            Node::Scan(scan) => Some(Tree::Scan(*scan)),
            Node::Op([param, _, _]) => {
                let param = param_of(self.best.graph, *param)?;
                let (id, state) = inputs[2];
                Some(self.build(id, state)?.then(param))
            }
            Node::Mix(_) => {
                let arms = inputs.into_iter().map(|(id, state)| self.build(id, state));
                Some(Tree::Mix(arms.collect::<Option<_>>()?))
            }
            Node::Cat(_) | Node::Zip(_) => {
                let [(a, of_a), (b, of_b)] = [inputs[0], inputs[1]];
                let second = plan_fact(self.best.graph, b)?.slots();
                let both = Box::new([self.build(a, of_a)?, self.build(b, of_b)?]);
                Some(match node {
                    Node::Cat(_) => Tree::Cat(both),
                    _ => Tree::Zip(both, second),
                })
            }
        }
    }
}

# Networks that feddbn has written, as R objects. The files are described in docs/schema.md.

newest <- c("feddbn-result" = 1, "feddbn-dbn" = 4)

refuse <- function(...) stop(..., call. = FALSE)

read_network <- function(file, of = NULL) {
  if (!is.character(file) || length(file) != 1 || !file.exists(file)) {
    refuse("file=", deparse(file)[1], " is no file; give a result or a network that feddbn wrote.")
  }
  text <- paste(readLines(file, encoding = "UTF-8", warn = FALSE), collapse = "\n")
  stored <- tryCatch(jsonlite::parse_json(text, simplifyVector = TRUE), error = function(e) NULL)
  format <- if (is.list(stored)) stored$format
  if (is.null(format) || !format %in% names(newest)) {
    refuse("file=\"", file, "\" is neither a result nor a network of feddbn; give the file that feddbn fit wrote.")
  }
  if (stored$version > newest[[format]]) {
    refuse(
      "file=\"", file, "\" is a ", format, " of version ", stored$version, ", but this package reads up to ",
      newest[[format]], "; install a newer one."
    )
  }
  if (!is.null(of)) {
    if (!of %in% names(stored$personal)) {
      known <- if (length(stored$personal)) toString(names(stored$personal)) else "nobody has"
      refuse("of=\"", of, "\" has no network of its own in this file; known: ", known, ".")
    }
    return(new_network(stored$personal[[of]], NULL, stored))
  }
  if (format == "feddbn-dbn") new_network(stored, NULL, stored) else new_network(stored$dbn, stored$edges, stored)
}

# `edges` is the table of a result; NULL where a network stands alone, and then its weights are its edges.
new_network <- function(dbn, edges, about) {
  variables <- as.character(dbn$variables)
  d <- length(variables)
  named <- list(from = variables, to = variables)
  lags <- list(lag = as.character(seq_len(dbn$n_lags)))
  network <- list(
    variables = variables,
    n_lags = dbn$n_lags,
    W = matrix(as.numeric(dbn$W), d, d, dimnames = named),
    A = array(as.numeric(dbn$A), c(dbn$n_lags, d, d), dimnames = c(lags, named)),
    intercept = named_or_null(dbn$intercept, variables),
    noise_variances = named_or_null(dbn$noise_variances, variables),
    is_straight = !length(dbn$nodes),
    method = about$method,
    status = about$status$message,
    warnings = as.character(about$warnings)
  )
  bases <- unlist(lapply(dbn$nodes$terms, function(terms) terms$basis))
  if (is.null(edges) && any(bases != "value")) {
    refuse("this network has curves, and only a result lists their edges; give the file that feddbn fit wrote.")
  }
  # A result without edges has an empty list.
  network$edges <- if (is.data.frame(edges)) edges else edges_of(network, dbn$open_edges)
  structure(network, class = "feddbn_network")
}

weights_at <- function(network, lag) {
  if (lag == 0) network$W else matrix(network$A[lag, , ], nrow(network$W))
}

# Numbers that a network does not know are NULL.
named_or_null <- function(values, names) if (is.null(values)) NULL else stats::setNames(values, names)

edges_of <- function(network, open_edges) {
  parts <- lapply(0:network$n_lags, function(lag) {
    weights <- weights_at(network, lag)
    at <- which(weights != 0, arr.ind = TRUE)
    names <- list(source = network$variables[at[, 1]], target = network$variables[at[, 2]])
    data.frame(names, lag = rep(as.integer(lag), nrow(at)), weight = weights[at])
  })
  edges <- do.call(rbind, parts)
  pairs <- matrix(as.character(open_edges), ncol = 2)
  has_no_head <- function(source, target, lag) lag == 0 && any(pairs[, 1] == source & pairs[, 2] == target)
  is_open <- mapply(has_no_head, edges$source, edges$target, edges$lag)
  cbind(edges, oriented = !as.logical(is_open))
}

as.data.frame.feddbn_network <- function(x, ...) x$edges

print.feddbn_network <- function(x, ...) {
  by <- if (length(x$method)) paste0(" by ", x$method)
  size <- paste0("variables: ", length(x$variables), ", lags: ", x$n_lags, ", edges: ", nrow(x$edges))
  cat("Network", by, " (", size, ")\n", sep = "")
  shown <- intersect(c("source", "target", "lag", "weight", "oriented"), names(x$edges))
  if (nrow(x$edges)) print(x$edges[shown], digits = 3, row.names = FALSE)
  for (sentence in x$warnings) writeLines(strwrap(paste("Warning:", sentence), exdent = 2))
  invisible(x)
}

as.igraph.feddbn_network <- function(x, unrolled = FALSE, ...) {
  edges <- x$edges
  nodes <- data.frame(name = x$variables)
  if (unrolled) {
    edges$source <- paste0(edges$source, "_lag", edges$lag, recycle0 = TRUE)
    edges$target <- paste0(edges$target, "_lag0", recycle0 = TRUE)
    nodes <- expand.grid(variable = x$variables, lag = 0:x$n_lags, stringsAsFactors = FALSE)
    nodes <- cbind(name = paste0(nodes$variable, "_lag", nodes$lag), nodes)
  }
  igraph::graph_from_data_frame(edges, vertices = nodes)
}

effects.feddbn_network <- function(object, source = NULL, horizon = 10, ...) {
  unknown <- setdiff(source, object$variables)
  if (length(unknown) > 0) {
    refuse("source=", deparse(unknown[1]), " is not a variable of the network; it has ",
           paste(object$variables, collapse = ", "), ".")
  }
  if (!is.numeric(horizon) || length(horizon) != 1 || is.na(horizon) || horizon < 0 || horizon != round(horizon)) {
    refuse("horizon=", deparse(horizon)[1], " must be a whole number of at least 0.")
  }
  if (!object$is_straight) {
    refuse("in a network with curves or other kinds effects depend on the value; feddbn effects --at computes them.")
  }
  within <- solve(diag(nrow(object$W)) - object$W)
  found <- list(within)
  for (h in seq_len(horizon)) {
    lags <- seq_len(min(h, object$n_lags))
    terms <- lapply(lags, function(lag) found[[h + 1 - lag]] %*% weights_at(object, lag) %*% within)
    found[[h + 1]] <- Reduce(`+`, terms, 0 * within)
  }
  pairs <- expand.grid(source = object$variables, target = object$variables, stringsAsFactors = FALSE)
  tables <- lapply(0:horizon, function(h) cbind(pairs, step = h, effect = as.vector(found[[h + 1]])))
  found <- do.call(rbind, tables)
  if (is.null(source)) found else found[found$source %in% source, ]
}

# reticulate hands a missing whole number over as -2147483648, a missing yes or no as one of them, missing text as "NA".
as_sites <- function(sites) {
  if (!is.list(sites)) refuse("sites must be data frames in a list with the names of the sites.")
  if (!is.data.frame(sites)) return(lapply(sites, as_sites))
  sites[] <- lapply(sites, function(column) {
    if (!anyNA(column)) column
    else if (is.integer(column) || is.logical(column)) as.numeric(column)
    else if (is.character(column)) factor(column)
    else column
  })
  sites
}

as_network <- function(model) {
  file <- tempfile(fileext = ".json")
  on.exit(unlink(file))
  reticulate::import("feddbn.results.result")$Result$from_estimator(model)$save(file)
  read_network(file)
}

# By way of plain lists: numpy 2 and pandas 3 have types that many versions of reticulate leave as they are.
as_frame <- function(table) {
  if (is.data.frame(table)) return(table)
  is_missing <- function(value) is.null(value) || (is.numeric(value) && is.nan(value))
  columns <- lapply(table$to_dict("list"), function(values) {
    if (!length(values)) return(logical(0))
    # Values of several types: text with gaps.
    if (is.list(values)) values[vapply(values, is_missing, TRUE)] <- NA
    unlist(values)
  })
  as.data.frame(columns, optional = TRUE, stringsAsFactors = FALSE)
}

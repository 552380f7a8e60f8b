# What a client of DataSHIELD meets, as far as the tests need it: one call for each server, as text; only functions that a
# server package lists; strings of the characters that Opal's grammar (datashield4j, version 2) lets through; values that are
# stored and read again on their way; errors that reach callbacks, and one error at the end. A connection is the folder of a
# site, as its server would have it in its environment.

a_call <- '^([a-zA-Z][a-zA-Z0-9_.$-]*)\\("([a-zA-Z0-9_.+;:,$-]+)"\\)$'

datashield.aggregate <- function(conns, expr, async = TRUE, success = NULL, error = NULL) {
  failed <- FALSE
  values <- list()
  for (name in names(expr)) {
    tryCatch({
      values[[name]] <- at_server(conns[[name]], paste(deparse(expr[[name]]), collapse = "\n"))
      if (is.function(success)) success(name, values[[name]])
    }, error = function(e) {
      failed <<- TRUE
      if (is.function(error)) error(name, conditionMessage(e))
    })
  }
  if (failed) stop("There are some DataSHIELD errors, list them with datashield.errors()", call. = FALSE)
  values
}

at_server <- function(folder, text) {
  if (!grepl(a_call, text)) stop("the script cannot be parsed")
  method <- sub(a_call, "\\1", text)
  allowed <- trimws(strsplit(utils::packageDescription("feddbn")$AggregateMethods, ",")[[1]])
  if (!method %in% allowed) stop("no such method: ", method)
  Sys.setenv(FEDDBN_SITE = folder)
  unserialize(serialize(eval(parse(text = paste0("feddbn::", text))), NULL))
}

# Messages of studies as raw vectors: sites, for which a process of Python answers, and studies over DataSHIELD.

# In text bytes are base64 with - and _, without line ends: DataSHIELD lets through letters, digits and few signs.
in_text <- function(bytes) gsub("\n", "", jsonlite::base64url_enc(bytes), fixed = TRUE)

open_site <- function(folder, python = Sys.getenv("FEDDBN_PYTHON", "python3")) {
  if (!is.character(folder) || length(folder) != 1 || !dir.exists(folder)) {
    refuse("folder=", deparse(folder)[1], " is no folder; give that of a site, with its feddbn_site.toml.")
  }
  site <- structure(new.env(), class = "feddbn_site")
  site$n <- 0
  site$mailbox <- tempfile("feddbn")
  dir.create(site$mailbox, mode = "0700")
  places <- shQuote(c(normalizePath(folder), site$mailbox))
  site$process <- pipe(paste(c(shQuote(python), "-m feddbn.adapters.r", places), collapse = " "), "w")
  reg.finalizer(site, close, onexit = TRUE)
  site
}

close.feddbn_site <- function(con, ...) {
  if (!is.null(con$process)) close(con$process)
  con$process <- NULL
  unlink(con$mailbox, recursive = TRUE)
}

handle <- function(site, message, seconds = 600) {
  if (!is.raw(message)) refuse("message must be a raw vector, as an exchange has it.")
  site$n <- site$n + 1
  reply <- file.path(site$mailbox, site$n)
  failed <- file.path(site$mailbox, "failed")
  end <- Sys.time() + seconds
  # A process that has ended cannot be written to.
  lives <- tryCatch({writeLines(in_text(message), site$process); flush(site$process); TRUE}, error = function(e) FALSE)
  while (!file.exists(reply)) {
    if (file.exists(failed)) refuse(paste(readLines(failed, warn = FALSE), collapse = " "))
    if (!lives) refuse("the site's process has ended; does `python -m feddbn.adapters.r` start here?")
    if (Sys.time() > end) refuse("the site has not answered within ", seconds, " seconds.")
    Sys.sleep(0.005)
  }
  on.exit(unlink(reply))
  readBin(reply, "raw", file.size(reply))
}

# The aggregate function of DataSHIELD. Who runs the server says in FEDDBN_SITE which folder it is. Errors reach the client,
# so they tell nothing; the reason is in the log of R.
feddbnDS <- function(message) {
  tryCatch({
    folder <- Sys.getenv("FEDDBN_SITE")
    if (is.null(opened[[folder]])) assign(folder, open_site(folder), opened)
    handle(opened[[folder]], jsonlite::base64url_dec(substring(message, 2)))
  }, error = function(e) {
    base::message("feddbn: ", conditionMessage(e))
    refuse("this site cannot answer; who runs it finds the reason in the log of R.")
  })
}

opened <- new.env()

# The dot is there since DataSHIELD lets no empty string through.
datashield_exchange <- function(connections) {
  function(messages) {
    replies <- list()
    known <- intersect(names(messages), names(connections))
    calls <- lapply(messages[known], function(one) call("feddbnDS", paste0(".", in_text(one))))
    take <- function(name, value) if (is.raw(value)) replies[[name]] <<- value
    tryCatch(
      DSI::datashield.aggregate(connections[known], calls, success = take),
      error = function(e) base::message("DataSHIELD: ", conditionMessage(e))
    )
    replies
  }
}

conduct <- function(study, exchange, folder, run = NULL) {
  carry <- function(messages) lapply(exchange(lapply(messages, jsonlite::base64url_dec)), in_text)
  reticulate::import("feddbn.adapters.r")$conduct(study, carry, folder, run)
}

// Lets the search of the site work where pages are opened as files. Browsers start no workers there, so the script of
// the worker runs in a hidden frame instead. Material's search looks for `IFrameWorker`, and would fetch one from outside.
"use strict";

class IFrameWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.documentElement.append(frame);
    this.inside = frame.contentWindow;
    this.inside.document.open();
    this.inside.document.write("<body></body>");
    this.inside.document.close();
    this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    const script = this.inside.document.createElement("script");
    script.src = url;
    this.ready = new Promise((done) => script.addEventListener("load", done));
    this.inside.document.body.append(script);
  }

  postMessage(data) {
    this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
  }
}

if (location.protocol === "file:") {
  window.IFrameWorker = IFrameWorker;
  window.Worker = IFrameWorker;
}

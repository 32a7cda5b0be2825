"use strict";
// The search of the documentation is a worker. Browsers start no worker from a file, so there, it runs in a frame.
if (location.protocol === "file:")
  window.Worker = class {
    constructor(url) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.srcdoc = `<script src="${url}"></script>`;
      this.loaded = new Promise(resume => (this.frame.onload = resume));
      document.body.append(this.frame);
    }
    async postMessage(data) {
      await this.loaded;
      const scope = this.frame.contentWindow;
      scope.postMessage = answer => this.onmessage({ data: answer });
      scope.onmessage({ data });
    }
    terminate() {
      this.frame.remove();
    }
  };
